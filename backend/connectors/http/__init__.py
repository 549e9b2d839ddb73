from backend.connectors.http.batch import HttpDeliverBatch
from backend.connectors.http.call import HttpCall
from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.deliver import HttpDeliver
from backend.connectors.http.read import HttpReadBatch
from backend.connectors.parts.http_endpoint import check_endpoint
from backend.domain.connector import Connector, connectors


@connectors.register
class HttpEndpoint(Connector):
    """Sends messages to an HTTP endpoint, polls JSON APIs, and calls HTTP APIs."""

    type = "http"
    title = "HTTP endpoint"
    connection_model = HttpConnection
    capabilities = (HttpDeliver, HttpDeliverBatch, HttpReadBatch, HttpCall)
    example = {
        "url": "https://api.example.com/webhooks",
        "authentication": {"type": "bearer", "token": "s3cret"},
    }

    @staticmethod
    async def check(connection: HttpConnection) -> str:
        return await check_endpoint(connection)
