from uuid import uuid4

from backend.connectors.elasticsearch.client import LOGIN_REJECTED, NOT_PERMITTED, Client
from backend.connectors.elasticsearch.connection import ElasticsearchConnection
from backend.connectors.elasticsearch.write import ElasticsearchDeliver, ElasticsearchDeliverBatch
from backend.connectors.parts.field_error import field_of
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.reasons import Reason

_FIELDS = {Reason.TLS: "verify_tls", LOGIN_REJECTED: "authentication", NOT_PERMITTED: "authentication"}
"""The fields that are to blame for an error; the address is for any other."""


@connectors.register
class Elasticsearch(Connector):
    """Writes messages as documents to indexes of Elasticsearch and OpenSearch."""

    type = "elasticsearch"
    title = "Elasticsearch and OpenSearch"
    connection_model = ElasticsearchConnection
    capabilities = (ElasticsearchDeliver, ElasticsearchDeliverBatch)
    example = {
        "url": "https://search.example.com:9200",
        "authentication": {"type": "basic", "username": "headrace", "password": "s3cret"},
    }

    @staticmethod
    async def check(connection: ElasticsearchConnection) -> str:
        """Logs in, and asks for cluster and version and whether the index may be written."""
        client = Client(connection)
        try:
            cluster = await _cluster(client)
            writable = await _writable(client, connection.test_index) if connection.test_index else ""
        except DeliveryError as error:
            field = field_of(error) or _FIELDS.get(error.reason, "url")
            raise CheckFailedError(str(error), field=field) from None
        finally:
            await client.close()
        return f"Connected to {cluster}.{writable}"


async def _cluster(client: Client) -> str:
    try:
        root = await client.ask("")
        version = root["version"]
        product = "OpenSearch" if version.get("distribution") == "opensearch" else "Elasticsearch"
        return f"{product} {version['number']}, cluster {root['cluster_name']}"
    except DeliveryError as error:
        if error.reason != NOT_PERMITTED:
            raise
        return "a cluster whose name and version the login may not see"
    except (KeyError, TypeError, AttributeError):
        text = "What answers at this address is neither Elasticsearch nor OpenSearch."
        raise CheckFailedError(text, field="url") from None


async def _writable(client: Client, index: str) -> str:
    """Raises CheckFailedError when the login may not write to the index."""
    try:
        # Otherwise an attempt to write would create the index.
        if await client.ask(f"{index}?filter_path=*.aliases") is None:
            return f" There is no index {index} yet."
    except DeliveryError as error:
        if error.reason != NOT_PERMITTED:
            raise
        return f" The login may not see whether there is an index {index}, so that writing was not tested."
    # It is permitted first and then refused, since there is no such document.
    target = {"_index": index, "_id": str(uuid4()), "if_seq_no": 0, "if_primary_term": 1}
    try:
        [result] = await client.bulk(json.dumps({"index": target}) + b"\n{}\n")
    except DeliveryError as error:
        if error.reason != NOT_PERMITTED:
            raise
        raise CheckFailedError(str(error), field="test_index") from None
    if result["status"] in (401, 403, 429):
        reason = str(result["error"]["reason"]).rstrip(".")
        raise CheckFailedError(f"The index {index} cannot be written: {reason}.", field="test_index")
    return f" The login may write to the index {index}."
