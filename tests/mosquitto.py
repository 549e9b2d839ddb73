"""An MQTT broker for the tests, as Debian packages it."""

import os
import subprocess
from pathlib import Path
from tempfile import mkdtemp

from backend.runtime.health import is_listening
from tests.certificates import Authority
from tests.infra import VAR, Server
from tests.ports import free_ports

PORT, TLS_PORT, MUTUAL_PORT = free_ports(3)
USER = "headrace"
READER = "reader"
"""May publish nothing."""
PASSWORD = "planted-password-of-mqtt"
FOLDER = Path(mkdtemp(prefix="mosquitto-", dir=VAR))
AUTHORITY = Authority(FOLDER)
PACKET_BYTES = 2_000_000


def mosquitto_server() -> Server:
    """Not yet started."""
    certificate, key = AUTHORITY.issue("mosquitto")
    passwords = FOLDER / "passwords"
    passwords.touch(mode=0o600)
    for user in (USER, READER):
        subprocess.run(["mosquitto_passwd", "-b", passwords, user, PASSWORD], check=True)
    (FOLDER / "rights").write_text(f"user {USER}\ntopic readwrite #\nuser {READER}\ntopic read #\n")
    secured = f"cafile {AUTHORITY.certificate}\ncertfile {certificate}\nkeyfile {key}\n"
    config = FOLDER / "mosquitto.conf"
    config.write_text(
        f"listener {PORT} 127.0.0.1\n"
        f"listener {TLS_PORT} 127.0.0.1\n{secured}"
        f"listener {MUTUAL_PORT} 127.0.0.1\n{secured}require_certificate true\n"
        f"password_file {passwords}\nacl_file {FOLDER / 'rights'}\nallow_anonymous false\n"
        f"persistence true\npersistence_location {FOLDER}/\nmax_packet_size {PACKET_BYTES}\n"
        f"user {'root' if os.getuid() == 0 else 'mosquitto'}\n"
    )
    ports = (PORT, TLS_PORT, MUTUAL_PORT)
    command = ["/usr/sbin/mosquitto", "-c", str(config)]
    return Server("mosquitto", command, lambda: all(is_listening(f"127.0.0.1:{port}") for port in ports))
