"""A RabbitMQ server for the tests, as Debian packages it, with a port mapper of its own."""

import os
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

from backend.runtime.health import is_listening
from tests.certificates import Authority
from tests.infra import VAR, Server
from tests.ports import free_ports

PORT, TLS_PORT, _CLUSTER_PORT, _MAPPER_PORT = free_ports(4)
USER = "headrace"
PASSWORD = "planted-password/of rabbitmq"
FOLDER = Path(mkdtemp(prefix="rabbitmq-", dir=VAR))
AUTHORITY = Authority(FOLDER)
URL = f"amqp://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{PORT}/"


def port_mapper() -> Server:
    """Not yet started; the server needs it to run."""
    command = ["epmd", "-port", str(_MAPPER_PORT), "-address", "127.0.0.1"]
    return Server("epmd", command, lambda: is_listening(f"127.0.0.1:{_MAPPER_PORT}"))


def rabbitmq_server() -> Server:
    """Not yet started."""
    certificate, key = AUTHORITY.issue("rabbitmq")
    (FOLDER / "plugins").write_text("[].")
    (FOLDER / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{PORT}\n"
        f"listeners.ssl.1 = 127.0.0.1:{TLS_PORT}\n"
        f"ssl_options.cacertfile = {AUTHORITY.certificate}\n"
        f"ssl_options.certfile = {certificate}\n"
        f"ssl_options.keyfile = {key}\n"
        f"default_user = {USER}\ndefault_pass = {PASSWORD}\n"
        "disk_free_limit.absolute = 10MB\n"
    )
    settings = {
        "HOME": FOLDER,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": _MAPPER_PORT,
        "RABBITMQ_CONFIG_FILE": FOLDER / "rabbitmq.conf",
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_DIST_PORT": _CLUSTER_PORT,
        "RABBITMQ_ENABLED_PLUGINS_FILE": FOLDER / "plugins",
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_LOG_BASE": FOLDER,
        "RABBITMQ_MNESIA_BASE": FOLDER / "data",
        "RABBITMQ_NODENAME": f"headrace-{PORT}@localhost",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    command = ["env", *(f"{name}={value}" for name, value in settings.items()), "/usr/lib/rabbitmq/bin/rabbitmq-server"]
    return Server(
        "rabbitmq", command, lambda: is_listening(f"127.0.0.1:{PORT}") and is_listening(f"127.0.0.1:{TLS_PORT}")
    )
