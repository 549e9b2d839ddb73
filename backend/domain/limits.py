"""How large a message, and what is made of it, may become. What is larger becomes a dead letter.

The numbers depend on one another: a body leaves room in a record for the headers, and a record leaves room in a batch
for what Kafka adds, so that what keeps these limits is never refused by Kafka.
"""

from collections.abc import Iterator

from backend.domain import json

TOPIC_BYTES = 4 * 1024 * 1024
"""Limit of Headrace's topics for a batch of records (``max.message.bytes``)."""
RECORD_BYTES = TOPIC_BYTES - 64 * 1024
"""Limit of the producers for one record: key, value and headers."""
BODY_BYTES = 3 * 1024 * 1024
"""Limit of a message's body, after each step."""
DEPTH = 100
"""Limit of the lists and objects in one another that a decoder or an encoder makes, as in Protobuf and MongoDB; the
stacks of Python and of native code end only at several times as many."""
VALUES = BODY_BYTES // 2
"""Limit of the values that a decoder makes of a message: as JSON each takes two bytes at least, so that more cannot
become a body."""
AVRO_BLOCK_BYTES = 32 * 1024 * 1024
"""Limit of an unpacked block of an Avro file; writers begin a new one after some kilobytes to a few megabytes."""
INDEX_BYTES = 64 * 1024
"""Limit of the values that a message is filtered by, as JSON."""
SOURCE_HEADERS_BYTES = 64 * 1024
"""Limit of the headers that a record has which is read, as text."""
KEY_BYTES = 1024
"""A longer ordering key is replaced with its hash."""
FAN_OUT_MESSAGES = 10_000
"""Limit of the messages that are made of one."""
FAN_OUT_BYTES = 16 * 1024 * 1024
"""Limit of the bodies that steps make of one message, which are all held in memory."""
TRANSACTION_BYTES = 64 * 1024 * 1024
"""Limit of the records that are written in one transaction, with their headers, and so of those that follow from one
message."""
PATTERN_SIZE = 20_000
"""Limit of a regular expression's size (``patterns.pattern_size``): ``.{0,1000}`` has 3,000."""
MATCHING = 2_000_000_000
"""Limit of the bytes of a message's texts times the size of the regular expressions that each is matched with. The
engines take some 4 nanoseconds for each in the worst case."""
CHECKS = 200_000_000
"""Limit of a message's values times the parts of a JSON Schema that each is checked with, which take 10 to
40 nanoseconds."""
ERROR_CHARACTERS = 2000
"""Limit of a dead letter's error, which may quote the message."""
HEADER_BYTES = 1024
"""Limit of each header of a dead letter that would otherwise be too large for Kafka."""

_LARGE = 64 * 1024


class TooLargeError(ValueError):
    """A limit is exceeded; the message is a sentence that names it."""


def check_body(size: int) -> None:
    """Raises TooLargeError."""
    if size > BODY_BYTES:
        raise TooLargeError(f"The message would become larger than {BODY_BYTES:,} bytes.")


def check_source_headers(size: int) -> None:
    """Raises TooLargeError."""
    if size > SOURCE_HEADERS_BYTES:
        raise TooLargeError(f"The record's headers are larger than {SOURCE_HEADERS_BYTES:,} bytes as text.")


def check_depth(depth: int) -> None:
    """Raises TooLargeError."""
    if depth > DEPTH:
        raise TooLargeError(f"The message is nested more than {DEPTH} deep.")


def check_values(count: int) -> None:
    """Raises TooLargeError."""
    if count > VALUES:
        raise TooLargeError(f"The message would have more than {VALUES:,} values.")


def check_growth(document: object, written: object) -> None:
    """Checks a document in place of which, or in which, a value was written. Raises TooLargeError.

    Measuring a document costs as much as a step, so it is measured only when the value is large or a container.
    """
    if len(written) > _LARGE if isinstance(written, str) else isinstance(written, dict | list):
        check_body(len(json.dumps(document)))


def count_values(document: object, most: int) -> int:
    """How many values the document has, itself among them; more than ``most`` if there are more than that."""
    count, rest = 0, [document]
    while rest and count <= most:
        value = rest.pop()
        count += 1
        if isinstance(value, dict):
            rest += value.values()
        elif isinstance(value, list):
            rest += value
    return count


def texts(document: object) -> Iterator[str]:
    """The document's texts, the names of objects among them."""
    rest = [document]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            rest += [*value, *value.values()]
        elif isinstance(value, list):
            rest += value


def count_text(document: object) -> int:
    """How many characters the document's texts have."""
    return sum(map(len, texts(document)))


class FanOut:
    """Counts what is made of one message, which may have so many bytes in total."""

    def __init__(self, most_bytes: int = FAN_OUT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._messages = 0
        self._bytes = 0

    def add(self, size: int, messages: int = 1) -> None:
        """Raises TooLargeError."""
        self._messages += messages
        self._bytes += size
        if self._messages > FAN_OUT_MESSAGES:
            raise TooLargeError(f"The message would become more than {FAN_OUT_MESSAGES:,} messages.")
        if self._bytes > self._most_bytes:
            raise TooLargeError(f"The message would become messages of more than {self._most_bytes:,} bytes in total.")
