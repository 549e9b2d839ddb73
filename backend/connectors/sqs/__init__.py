from backend.connectors.parts.aws import AwsClient, check_login
from backend.connectors.sqs.queue import CALL_SECONDS, SqsConnection
from backend.connectors.sqs.read import SqsReadStream
from backend.connectors.sqs.write import SqsDeliver, SqsDeliverBatch
from backend.domain.connector import Connector, connectors


@connectors.register
class Sqs(Connector):
    """Reads the messages of Amazon SQS queues, and sends messages to them."""

    type = "sqs"
    title = "Amazon SQS"
    connection_model = SqsConnection
    capabilities = (SqsDeliver, SqsDeliverBatch, SqsReadStream)
    requires = ("aiobotocore",)
    example = {
        "region": "sa-east-1",
        "access": {"type": "access_key", "access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "s3cret"},
    }

    @staticmethod
    async def check(connection: SqsConnection) -> str:
        """Lists queues, which needs a working login; that it is not permitted proves one, too."""
        client = AwsClient(connection, "sqs", "SQS", seconds=CALL_SECONDS)
        return await check_login(client, lambda sqs: sqs.list_queues(MaxResults=1), "queues")
