from backend.connectors.delta_sharing.connection import DeltaSharingConnection
from backend.connectors.delta_sharing.protocol import Provider
from backend.connectors.delta_sharing.read import DeltaSharingReadBatch
from backend.connectors.parts.field_error import field_of
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors


@connectors.register
class DeltaSharing(Connector):
    """Reads tables that are shared by Delta Sharing."""

    type = "delta_sharing"
    title = "Delta Sharing"
    connection_model = DeltaSharingConnection
    capabilities = (DeltaSharingReadBatch,)
    requires = ("pyarrow",)
    example = {
        "profile": {
            "file": '{"shareCredentialsVersion": 1, "endpoint": "https://sharing.example.com/delta-sharing/", '
            '"bearerToken": "s3cret"}'
        }
    }

    @staticmethod
    async def check(connection: DeltaSharingConnection) -> str:
        """Lists the shares, which needs a valid token."""
        provider = Provider(connection)
        try:
            shares = await provider.shares()
        except DeliveryError as error:
            text = str(error.without([connection.profile.token]))
            raise CheckFailedError(text, field=field_of(error) or "profile") from None
        finally:
            await provider.close()
        names = f": {', '.join(shares[:5])}" if shares else ""
        return f"Connected to {connection.profile.host}; {len(shares)} share(s){names}."
