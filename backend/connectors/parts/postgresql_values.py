"""PostgreSQL's values as JSON, from the text that the server writes: as its own function row_to_json gives them."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from psycopg import adapters
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader, Transformer
from psycopg.pq import Format
from psycopg.types import TypeInfo

Convert = Callable[[bytes], Any]

_DATE_AND_TIME = re.compile(r"\d{4,}-\d\d-\d\d \d")
_HOURS_ALONE = re.compile(r"[+-]\d\d$")
_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[+-]\d+)?")
_RESOLVE = """
SELECT t.oid, t.typname::text, t.typtype::text, t.typbasetype, t.typelem, e.typname::text
FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE t.oid = ANY(%s::oid[])
"""


class _Text(Loader):
    def load(self, data: Buffer) -> Any:
        return bytes(data).decode(errors="replace")


class _Boolean(Loader):
    def load(self, data: Buffer) -> Any:
        return bytes(data) == b"t"


class _Number(Loader):
    def load(self, data: Buffer) -> Any:
        """As it is written; what JSON cannot write, such as NaN, is a text."""
        text = bytes(data)
        return msgspec.Raw(text) if _NUMBER.fullmatch(text) else text.decode()


class _Json(Loader):
    def load(self, data: Buffer) -> Any:
        return msgspec.Raw(bytes(data))


class _Time(Loader):
    def load(self, data: Buffer) -> Any:
        text = bytes(data).decode()
        if _DATE_AND_TIME.match(text):
            text = text.replace(" ", "T", 1)
        return f"{text}:00" if _HOURS_ALONE.search(text) and "T" in text else text


_LOADERS: dict[str, type[Loader]] = {
    "bool": _Boolean,
    "json": _Json,
    "jsonb": _Json,
    "timestamp": _Time,
    "timestamptz": _Time,
} | dict.fromkeys(("int2", "int4", "int8", "oid", "float4", "float8", "numeric"), _Number)


class ValueConverter:
    """Knows PostgreSQL's own types, and those of one database as they are met."""

    def __init__(self) -> None:
        self._adapters = AdaptersMap(adapters)
        for info in adapters.types:
            if not issubclass(type(info), TypeInfo) or info.oid == 0:
                continue
            self._adapters.register_loader(info.oid, _LOADERS.get(info.name, _Text))
        self._adapters.register_loader(0, _Text)
        self._domains: dict[int, int] = {}
        self._known = {oid for info in adapters.types for oid in (info.oid, info.array_oid)}

    async def learn(self, types: Iterable[int], query: Callable[[str, list[Any]], Any]) -> None:
        """Looks up what an unknown type consists of: a domain's base, an array's elements. ``query`` runs SQL."""
        unknown = sorted(set(types) - self._known)
        while unknown:
            rows = await query(_RESOLVE, [unknown])
            self._known |= set(unknown)
            parts = set()
            for oid, name, kind, base, element, element_name in rows:
                if kind == "d":
                    self._domains[oid] = base
                    parts.add(base)
                elif element_name is not None:
                    TypeInfo(element_name or name, element, oid).register(_Context(self._adapters))
                    parts.add(element)
            unknown = sorted(parts - self._known)

    def of(self, type: int) -> Convert:
        """Converts a value of that type, by its OID."""
        while type in self._domains:
            type = self._domains[type]
        return Transformer(_Context(self._adapters)).get_loader(type, Format.TEXT).load


class _Context:
    """What psycopg asks of a connection when types are registered."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters
