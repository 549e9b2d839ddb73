from backend.connectors.kinesis.read import KinesisReadStream
from backend.connectors.kinesis.stream import CALL_SECONDS, KinesisConnection
from backend.connectors.kinesis.write import KinesisDeliver, KinesisDeliverBatch
from backend.connectors.parts.aws import AwsClient, check_login
from backend.domain.connector import Connector, connectors


@connectors.register
class Kinesis(Connector):
    """Reads the records of Amazon Kinesis data streams, and puts records into them."""

    type = "kinesis"
    title = "Amazon Kinesis"
    connection_model = KinesisConnection
    capabilities = (KinesisDeliver, KinesisDeliverBatch, KinesisReadStream)
    requires = ("aiobotocore",)
    example = {
        "region": "sa-east-1",
        "access": {"type": "access_key", "access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "s3cret"},
    }

    @staticmethod
    async def check(connection: KinesisConnection) -> str:
        """Lists streams, which needs a working login; that it is not permitted proves one, too."""
        client = AwsClient(connection, "kinesis", "Kinesis", seconds=CALL_SECONDS)
        return await check_login(client, lambda kinesis: kinesis.list_streams(Limit=1), "streams")
