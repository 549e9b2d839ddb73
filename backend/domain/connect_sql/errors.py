"""What is wrong with a text of statements. No sentence quotes what a user has written, since it may be a secret."""


class StatementError(ValueError):
    """The statements cannot be executed as they are written; ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, *, line: int, column: int, expected: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.expected = expected


class QueryError(ValueError):
    """A declaration or query means nothing, or is not supported (``supported`` is false then). The message is a
    sentence, and names streams, tables and columns; ``properties`` has those on single properties."""

    def __init__(self, message: str, *, properties: dict[str, list[str]] | None = None, supported: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.properties = properties or {}
        self.supported = supported
