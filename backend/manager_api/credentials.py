"""How the manager and the data plane authenticate each other: with certificates, or with the service token alone."""

from pathlib import Path
from typing import TypedDict

import grpc

from backend.settings import Settings


class NoCredentialsError(Exception):
    """Anybody could read the configuration; the message says what to set."""


def server_credentials(environment: Settings) -> grpc.ServerCredentials | None:
    """For the manager; None without certificates. Raises NoCredentialsError when there is no token either."""
    files = _files(environment)
    if files is None:
        if not environment.service_token.get_secret_value():
            raise NoCredentialsError(
                "Set HEADRACE_SERVICE_TOKEN, or HEADRACE_MANAGER_CERTIFICATE, HEADRACE_MANAGER_KEY and "
                "HEADRACE_MANAGER_AUTHORITY: without them anybody could read the configuration with its secrets."
            )
        return None
    certificate, key, authority = files
    return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)


def channel_credentials(environment: Settings) -> grpc.ChannelCredentials | None:
    """For the data plane; None without certificates."""
    files = _files(environment)
    if files is None:
        return None
    certificate, key, authority = files
    return grpc.ssl_channel_credentials(authority, key, certificate)


class ManagerAccess(TypedDict):
    """What every client of the manager in the data plane is made with."""

    manager_address: str
    service_token: str
    credentials: grpc.ChannelCredentials | None


def manager_access(environment: Settings) -> ManagerAccess:
    return {
        "manager_address": environment.manager_address,
        "service_token": environment.service_token.get_secret_value(),
        "credentials": channel_credentials(environment),
    }


def _files(environment: Settings) -> tuple[bytes, bytes, bytes] | None:
    if not environment.manager_certificate:
        return None
    certificate, key, authority = (
        Path(path).read_bytes()
        for path in (environment.manager_certificate, environment.manager_key, environment.manager_authority)
    )
    return certificate, key, authority
