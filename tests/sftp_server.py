"""An SFTP server for the tests: ``python tests/sftp_server.py PORT FOLDER HOST-KEY AUTHORIZED-KEYS``.

Each user sees the folder of the own name alone.
"""

import asyncio
import sys

import asyncssh

PASSWORD = "password-of-sftp"


class _Server(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return password == PASSWORD


async def main(port: str, folder: str, host_key: str, authorized_keys: str) -> None:
    def session(channel: asyncssh.SSHServerChannel) -> asyncssh.SFTPServer:
        return asyncssh.SFTPServer(channel, chroot=f"{folder}/{channel.get_extra_info('username')}".encode())

    server = await asyncssh.create_server(
        _Server,
        "127.0.0.1",
        int(port),
        server_host_keys=[host_key],
        authorized_client_keys=authorized_keys,
        sftp_factory=session,
        allow_scp=False,
    )
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
