"""Parses statements."""

from backend.domain.connect_sql.errors import StatementError
from backend.domain.connect_sql.statements import Statement

LONGEST = 100_000
"""Characters of one text."""


def parse(text: str) -> list[Statement]:
    """The statements of the text. Raises StatementError."""
    if len(text) > LONGEST:
        raise StatementError(f"At most {LONGEST:,} characters can be executed at once.", line=1, column=1)
    from backend.domain.connect_sql.syntax import parsed  # few processes parse anything

    return parsed(text)
