"""The far host of a tunnel, at save and before anything is connected to."""

from typing import Any

import pytest

from backend.apps.connectors import services
from backend.apps.connectors.services import connection_validate
from backend.apps.workspaces.models import Workspace
from backend.connectors.parts import database
from backend.connectors.parts.database import ConnectionFailedError, SqlConnection, route_to
from backend.domain.errors import ConfigError
from backend.domain.masking import MASK, split_secrets
from backend.domain.reasons import Reason
from backend.network import outbound
from backend.network.outbound import OutboundPolicy

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
TUNNEL = {"host": "8.8.8.8", "user": "tunnel", "private_key": "a key", "host_key": HOST_KEY}


def connection(host: str) -> dict[str, Any]:
    server = {"dialect": "postgresql", "host": host, "database": "shop", "user": "reader", "password": "secret"}
    return server | {"ssh_tunnel": TUNNEL}


@pytest.fixture(autouse=True)
def _public_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (services, outbound):
        monkeypatch.setattr(module, "outbound_policy", OutboundPolicy)


def test_a_metadata_service_behind_a_tunnel_is_refused_when_it_is_saved() -> None:
    with pytest.raises(ConfigError) as refused:
        connection_validate(workspace=Workspace(), type="sql", connection=connection("169.254.169.254"))
    [(field, [sentence])] = refused.value.errors.items()
    assert field == "connection.host"
    assert "metadata service" in sentence


def test_a_private_database_behind_a_tunnel_is_saved() -> None:
    connection_validate(workspace=Workspace(), type="sql", connection=connection("10.0.0.7"))


def test_a_stored_password_is_not_sent_to_another_host_behind_the_same_tunnel() -> None:
    stored = split_secrets(SqlConnection, connection("10.0.0.7"))
    moved = connection("10.0.0.8") | {"password": MASK}
    with pytest.raises(ConfigError, match=r"connection\.password") as refused:
        services._check_secrets_stay(SqlConnection.model_validate(moved), moved, stored)
    assert list(refused.value.errors) == ["connection.password"]
    same = connection("10.0.0.7") | {"password": MASK}
    services._check_secrets_stay(SqlConnection.model_validate(same), same, stored)


async def test_a_metadata_service_behind_a_tunnel_is_refused_before_the_tunnel_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connected(*_: Any, **__: Any) -> Any:
        pytest.fail("The SSH server was connected to.")

    monkeypatch.setattr(database, "connected", connected)
    with pytest.raises(ConnectionFailedError, match="metadata service") as refused:
        async with route_to(SqlConnection.model_validate(connection("metadata.google.internal"))):
            pass
    assert (refused.value.field, refused.value.reason, refused.value.retryable) == ("host", Reason.FORBIDDEN, False)
