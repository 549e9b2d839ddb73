from backend.connectors.n8n.client import N8nClient
from backend.connectors.n8n.connection import N8nConnection
from backend.connectors.n8n.executions import N8nReadBatch
from backend.connectors.n8n.register import N8nRegister
from backend.connectors.parts.field_error import field_of
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CHECK_SECONDS, CheckFailedError, Connector, connectors

_CHECK_SECONDS = 0.8 * CHECK_SECONDS
"""So that the error names n8n, and not only that the check took too long."""


@connectors.register
class N8n(Connector):
    """Runs a workflow in n8n, and reads what it brings."""

    type = "n8n"
    title = "n8n"
    connection_model = N8nConnection
    capabilities = (N8nReadBatch, N8nRegister)
    example = {
        "url": "https://n8n.example.com",
        "api_key": "s3cret-key",
        "credentials": [{"name": "erp", "type": "httpHeaderAuth", "data": '{"name": "X-Key", "value": "s3cret"}'}],
    }

    @staticmethod
    async def check(connection: N8nConnection) -> str:
        """Lists workflows and executions with the API key."""
        client = N8nClient(connection)
        try:
            async with client.limit(_CHECK_SECONDS):
                await _list_both(client)
        except DeliveryError as error:
            refused = error.without(connection.sent_secrets())
            field = "api_key" if refused.status in ("401", "403") else field_of(error) or "url"
            raise CheckFailedError(str(refused), field=field) from None
        finally:
            await client.close()
        return f"n8n's public API at {connection.url.host}:{connection.url.port} accepts the key."


async def _list_both(client: N8nClient) -> None:
    for path in ("workflows", "executions"):
        if await client.ask("GET", path, None, limit=1) is None:
            raise CheckFailedError(
                "n8n has no public API at this address: check the address, and that the API is enabled.",
                field="url",
            )
