"""Types that are made of others: arrays, maps and records."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from backend.domain import json, limits
from backend.domain.avro.scalars import MisfitError
from backend.domain.avro.types import Preparation, Scan, Type


class Repeated(Type):
    """Sections "Arrays" and "Maps": blocks of items, each with its count, which is negative if the block's size
    follows, and a count of zero at the end."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._is_map = name == "map"

    def free(self) -> float:
        return math.inf if not self._is_map and self.parts[0].takes_no_bytes() else 0

    def enter(self, scan: Scan) -> Iterator[Type]:
        [item] = self.parts
        while count := scan.long():
            if count < 0:
                scan.long()
            if not self._is_map and item.takes_no_bytes():
                scan.count(abs(count) * int(item.free()))
                continue
            scan.expect(abs(count))  # none takes less than a byte
            for _ in range(abs(count)):
                if self._is_map:
                    scan.skip(scan.long())
                yield item

    def compare(self, value: Any, preparation: Preparation, depth: int) -> bool:
        items = self._items(value)
        if items is None:
            return False
        preparation.count_choices(len(items))
        [item] = self.parts
        for one in items:  # noqa: SIM110 - a generator's frame at each level would double the depth of the stack
            if not item.fits(one, preparation, depth + 1):
                return False
        return True

    def _items(self, value: Any) -> Collection[Any] | None:
        if self._is_map:
            return value.values() if isinstance(value, dict) else None
        return value if isinstance(value, list) else None

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        limits.check_depth(depth + 1)
        if self._is_map and isinstance(value, dict):
            return dict(self._prepared(value.items(), preparation, depth))
        if not self._is_map and isinstance(value, list):
            return [made for _, made in self._prepared(enumerate(value), preparation, depth)]
        raise MisfitError("it is not an object" if self._is_map else "it is not a list")

    def _prepared(
        self, items: Iterable[tuple[Any, Any]], preparation: Preparation, depth: int
    ) -> Iterator[tuple[Any, Any]]:
        [item] = self.parts
        for step, value in items:
            try:
                yield step, item.prepared(value, preparation, depth + 1)
            except MisfitError as error:
                error.path.insert(0, str(step))
                raise

    def is_datum(self, datum: Any) -> bool:
        return isinstance(datum, dict if self._is_map else list)

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        [item] = self.parts
        if self._is_map:
            return {name: item.plain(one, preparation) for name, one in datum.items()}
        return [item.plain(one, preparation) for one in datum]


class Record(Type):
    """Section "Complex Types": data of the fields, one after the other."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.fields: Sequence[Field] = ()
        self._free: float | None = None
        self._is_empty: bool | None = None

    def free(self) -> float:
        if self._free is None:
            self._free = math.nan  # what is met again meanwhile contains itself without a choice
            self._free = 1 + sum(part.free() for part in self.parts)
        if math.isnan(self._free):
            raise ValueError(f"the record {self.name} always contains itself")
        return self._free

    def takes_no_bytes(self) -> bool:
        if self._is_empty is None:
            self._is_empty = False  # what contains itself always is refused
            self._is_empty = all(part.takes_no_bytes() for part in self.parts)
        return self._is_empty

    def enter(self, scan: Scan) -> Iterator[Type]:
        return iter(self.parts)

    def compare(self, value: Any, preparation: Preparation, depth: int) -> bool:
        if not isinstance(value, dict) or not value.keys() <= self._names:
            return False
        for field in self.fields:
            preparation.count_choices(1)
            if not field.type.fits(value.get(field.name, field.default), preparation, depth + 1):
                return False
        return True

    @cached_property
    def _names(self) -> set[str]:
        return {field.name for field in self.fields}

    def fields_in(self, value: Any) -> int:
        return sum(field.name in value for field in self.fields)

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        if not isinstance(value, dict):
            raise MisfitError("it is not an object")
        limits.check_depth(depth + 1)
        prepared: dict[str, Any] = {}
        for field in self.fields:
            try:
                if field.name in value:
                    prepared[field.name] = field.type.prepared(value[field.name], preparation, depth + 1)
                elif field.has_default:
                    prepared[field.name], size = field.prepared_default(depth + 1)
                    preparation.add_default(size)
                else:
                    raise MisfitError("it is missing")
            except MisfitError as error:
                error.path.insert(0, field.name)
                raise
        if unknown_fields := value.keys() - self._names:
            unknown = min(unknown_fields)
            raise MisfitError(f"it has the field {unknown}, which the schema does not have")
        return prepared

    def is_datum(self, datum: Any) -> bool:
        return isinstance(datum, tuple) and datum[0] == self.name

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        return {field.name: field.type.plain(datum[field.name], preparation) for field in self.fields}

    def check_defaults(self) -> None:
        """Raises ValueError for a default that would fill in more than the limits allow."""
        for field in self.fields:
            try:
                if field.has_default:
                    field.prepared_default(0)
            except limits.TooLargeError as error:
                raise ValueError(f"the default of {self.name}.{field.name} is too large or contains itself") from error
            except ValueError:
                pass  # one that does not fit is refused where it is needed


class Field:
    """A field of a record."""

    def __init__(self, name: str, schema: dict[str, Any], type_: Type) -> None:
        self.name = name
        self.type = type_
        self.has_default = "default" in schema
        self.default: Any = schema.get("default")
        self._prepared: tuple[Any, int] | None = None

    def prepared_default(self, depth: int) -> tuple[Any, int]:
        """The default, with those of fields that are missing in it, and its size. Raises ValueError."""
        if self._prepared is None:
            preparation = Preparation()
            prepared = self.type.prepared(self.default, preparation, depth)
            self._prepared = prepared, preparation.defaults + len(json.dumps(self.default))
        return self._prepared
