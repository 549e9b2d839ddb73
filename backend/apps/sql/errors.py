"""Why a statement was not executed."""


class SqlError(Exception):
    """The message is a sentence without secrets; ``status`` is the HTTP status that fits it. ``properties`` has the
    sentences on single properties of the WITH clause, all at once."""

    def __init__(self, message: str, *, status: int = 400, properties: dict[str, list[str]] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.properties = properties or {}
