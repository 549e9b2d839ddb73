"""What documents change in a multiset of records."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from backend.change_streams.records import RecordsByKey
from backend.collections.documents import Document
from backend.domain import cdc, json
from backend.domain.cdc import Format

Change = tuple[bytes, int]
"""A record as its datum, and the difference of its number."""


class Changes(Protocol):
    """Used by one thread at a time. A document that does not fit the schema raises ValueError."""

    needs_history: bool
    """Whether ``restore`` has to be called with all documents before those that are read."""

    def check(self, document: Document) -> None:
        """Raises ValueError, whose text is for people. May be called by any thread."""

    def restore(self, documents: Iterable[Document]) -> None: ...

    def of(self, documents: Iterable[Document]) -> Iterator[Change]:
        """The changes of a transaction's documents. May be asked for again until ``commit``."""

    def commit(self) -> None:
        """The last transaction has ended."""


class Deltas:
    """Documents that say it themselves: ``{"record": {...}, "delta": n}``."""

    needs_history = False

    def __init__(self, form: Format) -> None:
        self._form = form

    def check(self, document: Document) -> None:
        self._change(document)

    def restore(self, documents: Iterable[Document]) -> None:
        """Nothing depends on former documents."""

    def of(self, documents: Iterable[Document]) -> Iterator[Change]:
        return map(self._change, documents)

    def commit(self) -> None:
        """Nothing is kept."""

    def _change(self, document: Document) -> Change:
        record, delta = cdc.delta_of(json.loads(document.value))
        return self._form.datum(record), delta


class LastByKey:
    """Documents that each replace the one with the same key: the former record goes, and the new one comes, at the same
    time. Memory holds the records of one transaction; those of all keys are on disk."""

    needs_history = True

    def __init__(self, form: Format) -> None:
        self._form = form
        self._records = RecordsByKey()
        self._pending: dict[bytes, bytes | None] = {}

    def check(self, document: Document) -> None:
        self._record(document)

    def restore(self, documents: Iterable[Document]) -> None:
        self._records.update((_key(document), self._record(document)) for document in documents)

    def of(self, documents: Iterable[Document]) -> Iterator[Change]:
        self._pending = {_key(document): self._record(document) for document in documents}
        for key, record in self._pending.items():
            former = self._records.get(key)
            if former == record:
                continue
            if former is not None:
                yield former, -1
            if record is not None:
                yield record, 1

    def commit(self) -> None:
        self._records.update(self._pending.items())
        self._pending = {}

    def _record(self, document: Document) -> bytes | None:
        return None if document.deleted else self._form.datum(json.loads(document.value))


def _key(document: Document) -> bytes:
    return document.key or b""
