from pathlib import Path

from pydantic import Field

from backend.domain.capabilities import Connection, Deliver, DeliveryError, Options, Receipt
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.message import Message


class FileConnection(Connection):
    """A folder to write to."""

    folder: str = Field(description="Folder of the file.")


class FileOptions(Options):
    """One file."""

    file: str = Field(pattern=r"^[\w.-]+$", description="File to which each message is appended as a line.")


class FileDeliver(Deliver[FileConnection, FileOptions]):
    """Appends each message to a file. A body that says "explode" makes it fail unexpectedly."""

    options_model = FileOptions

    def target(self) -> str:
        return str(Path(self.connection.folder) / self.options.file)

    async def deliver(self, message: Message) -> Receipt:
        if b"explode" in message.body:
            raise KeyError("s3cret")
        if b"refuse" in message.body:
            raise DeliveryError("refused", "The file refuses this message.", retryable=False)
        with Path(self.target()).open("ab") as file:
            file.write(message.body + b"\n")
        return Receipt("written")


@connectors.register
class ToyFile(Connector):
    """Appends messages to a file."""

    type = "toy_file"
    title = "Toy file"
    connection_model = FileConnection
    capabilities = (FileDeliver,)
    example = {"folder": "/tmp"}

    @staticmethod
    async def check(connection: FileConnection) -> str:
        if not Path(connection.folder).is_dir():
            raise CheckFailedError("There is no such folder.", field="folder")
        return "The folder exists."
