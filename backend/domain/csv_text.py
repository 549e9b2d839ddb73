"""Rows of CSV (RFC 4180) as documents, and back. What is written reads back as it was, as text.

Every function raises ValueError, with a sentence, for what it cannot read or write.
"""

import csv
import io
from collections import Counter
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from backend.domain import charsets, json, limits


def _check_columns(columns: list[str]) -> list[str]:
    repeated = [name for name, count in Counter(columns).items() if count > 1]
    if repeated:
        raise ValueError(f"The column {repeated[0]} is listed more than once.")
    return columns


Delimiter = Annotated[str, Field(min_length=1, max_length=1, pattern=r'^[^"\r\n\x00]$')]
Columns = Annotated[list[str], AfterValidator(_check_columns)]


def read(data: bytes, delimiter: str, columns: list[str], charset: str = "") -> list[dict[str, str]]:
    """One document per row, with all values as text. Without ``columns`` the first row names them."""
    csv.field_size_limit(max(limits.BODY_BYTES, csv.field_size_limit()))  # of the process
    rows = csv.reader(io.StringIO(charsets.decode(data, charset), newline=""), delimiter=delimiter, strict=True)
    try:
        names = columns or _header(next(rows, []))
        documents, made = [], limits.FanOut()
        least = sum(map(len, names))  # of a document, which has all names, however short its row is
        for row in rows:
            if row:
                made.add(least)
                documents.append(_named(names, row, rows.line_num))
        return documents
    except csv.Error as error:
        raise ValueError(f"This is not valid CSV: {error}.") from None


def write(document: Any, delimiter: str, columns: list[str]) -> bytes:
    """One row without a line ending. Missing fields and null become empty values."""
    if not isinstance(document, dict):
        raise ValueError("Only an object can be written as CSV.")
    texts: list[str] = []
    size = 0
    for name in columns:
        value = document.get(name)
        text = "" if value is None else json.text(value)
        size += len(text)
        limits.check_body(size)
        texts.append(text)
    written = io.StringIO()
    # Only values with a character of the line ending are quoted for it.
    csv.writer(written, delimiter=delimiter, lineterminator="\r\n").writerow(texts)
    row = written.getvalue().removesuffix("\r\n")
    if row.startswith("\ufeff"):  # without quotes it would be a byte-order mark
        row = f'"{texts[0]}"{row[len(texts[0]) :]}'
    return row.encode()


def _header(names: list[str]) -> list[str]:
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name:
            raise ValueError(f"Column {number} of the header has no name: give the names of the columns.")
        if name in seen:
            raise ValueError(f"The header names the column {name} more than once: give the names of the columns.")
        seen.add(name)
    return names


def _named(names: list[str], row: list[str], line: int) -> dict[str, str]:
    if len(row) != len(names):
        raise ValueError(f"Line {line} has {len(row)} values for {len(names)} columns.")
    return dict(zip(names, row, strict=True))
