"""The classes that messages are read into, one for each definition."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from backend.kafka.wire.messages import Field, Message


class Struct:
    """A message or a part of one. Fields have the names of the definitions in snake_case; a field that a version does
    not have keeps its default. ``unknown_tags`` are forwarded unchanged."""

    __slots__ = ("unknown_tags",)
    _fields: tuple[Field, ...] = ()
    _types: dict[str, type["Struct"]] = {}

    unknown_tags: dict[int, bytes] | None
    _copy_to: Callable[["Struct"], None]

    def __init__(self, **values: Any) -> None:
        self.unknown_tags = None
        for field in self._fields:
            value = values.pop(field.name) if field.name in values else self._default(field)
            setattr(self, field.name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}.")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def copy(self, **changes: Any) -> "Struct":
        """A shallow copy with the given fields replaced."""
        copied: Struct = object.__new__(type(self))
        self._copy_to(copied)
        for name, value in changes.items():
            setattr(copied, name, value)
        return copied

    @classmethod
    def type_of(cls, name: str) -> type["Struct"]:
        """The class of a field's value, or of its elements if it is an array."""
        return cls._types[name]

    @classmethod
    def _default(cls, field: Field) -> Any:
        if field.is_array:
            return []
        if field.fields and field.nullable.first > field.nullable.last:
            return cls._types[field.name]()
        return field.default

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in self._fields)})"


@cache
def struct_type(message: Message) -> type[Struct]:
    """The class of a message's body, created when it is first needed."""
    return _build(message.name, message.fields)


def _build(name: str, fields: tuple[Field, ...]) -> type[Struct]:
    inner = {field.name: _build(field.kind, field.fields) for field in fields if field.fields}
    slots = tuple(field.name for field in fields)
    members = {"__slots__": slots, "_fields": fields, "_types": inner, "_copy_to": _copier(slots)}
    return type(name, (Struct,), members)


def _copier(slots: tuple[str, ...]) -> Callable[[Struct, Struct], None]:
    names: dict[str, Any] = {}
    exec("def copy(o, c): " + "; ".join(f"c.{name} = o.{name}" for name in (*slots, "unknown_tags")), names)
    copier: Callable[[Struct, Struct], None] = names["copy"]
    return copier
