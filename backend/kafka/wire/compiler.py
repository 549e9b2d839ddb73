"""Compiles a reader and a writer for each message and version when it is first used.

The definitions are turned into Python source, since interpreting them for every message takes about six times as long.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from backend.kafka.wire import primitives
from backend.kafka.wire.messages import FIXED, Field, Message
from backend.kafka.wire.primitives import Buffer, MalformedError, Parts
from backend.kafka.wire.structs import Struct, struct_type

_COPIED = 4096
"""Records of up to this many bytes are copied: a separate buffer would cost more."""


@dataclass(frozen=True)
class Coder:
    """The compiled reader and writer of one message in one version. ``name`` is for error messages."""

    name: str
    read: Callable[[Buffer, int], tuple[Struct, int]]
    write: Callable[[Struct, Parts], None]


@cache
def coder(message: Message, version: int) -> Coder:
    """Raises MalformedError when the message has no such version."""
    if version not in message.versions:
        raise MalformedError(f"{message.name} has no version {version}.")
    source = _Source(version, version in message.flexible)
    root = source.struct(struct_type(message), message.fields)
    names = source.compiled(message.name)
    return Coder(f"{message.name} v{version}", names[f"read_{root}"], names[f"write_{root}"])


class _Source:
    """Generates the Python source of one message in one version.

    In that source ``b`` is the frame, ``p`` the position, ``o`` the struct and ``w`` the buffer that is written to.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._lines: list[str] = []
        self._names: dict[str, Any] = {"new": object.__new__, "records": _add_records, "write_tags": _write_tags}
        self._names |= {name: getattr(primitives, name) for name in dir(primitives) if name.startswith(("read", "wri"))}
        self._names["MalformedError"] = MalformedError
        self._structs = 0

    def compiled(self, name: str) -> dict[str, Any]:
        exec(compile("\n".join(self._lines), f"<{name} v{self._version}>", "exec"), self._names)
        return self._names

    def struct(self, cls: type[Struct], fields: tuple[Field, ...]) -> int:
        """Adds the reader and the writer of a struct and returns the number in their names."""
        number = self._structs = self._structs + 1
        self._names[f"T{number}"] = cls
        inner = {f.name: self.struct(cls.type_of(f.name), f.fields) for f in fields if f.fields and self._has(f)}
        plain = [f for f in fields if self._has(f) and not self._is_tagged(f)]
        tagged = sorted((f for f in fields if self._has(f) and self._is_tagged(f)), key=lambda f: f.tag or 0)
        absent = [f for f in fields if not self._has(f) or self._is_tagged(f)]
        self._reader(number, plain, tagged, absent, inner)
        self._writer(number, plain, tagged, inner)
        return number

    def _has(self, field: Field) -> bool:
        return self._version in field.versions or self._is_tagged(field)

    def _is_tagged(self, field: Field) -> bool:
        return field.tag is not None and self._version in field.tagged

    def _is_nullable(self, field: Field) -> bool:
        return self._version in field.nullable

    def _add(self, depth: int, *lines: str) -> None:
        self._lines += ["    " * depth + line for line in lines]

    # -- readers

    def _reader(
        self, number: int, plain: list[Field], tagged: list[Field], absent: list[Field], inner: dict[str, int]
    ) -> None:
        self._add(0, f"def read_{number}(b, p):")
        self._add(1, f"o = new(T{number})", "o.unknown_tags = None")
        for field in absent:
            self._add(1, f"o.{field.name} = {self._default(number, field)}")
        for run in _runs(plain):
            self._read_run(run, inner)
        if self._flexible:
            self._add(1, "n = b[p]", "p += 1", "if n > 127: n, p = read_uvarint(b, p - 1)", "for _ in range(n):")
            self._add(2, "tag, p = read_uvarint(b, p)", "size, p = read_uvarint(b, p)", "end = p + size")
            self._add(2, "if end > len(b): raise MalformedError('A tagged field reaches beyond the frame.')")
            for field in tagged:
                self._add(2, f"if tag == {field.tag}:")
                self._read_value(3, field, inner)
                self._add(3, "p = end", "continue")
            self._add(2, "if o.unknown_tags is None: o.unknown_tags = {}")
            self._add(2, "o.unknown_tags[tag] = bytes(b[p:end])", "p = end")
        self._add(1, "return o, p")

    def _default(self, number: int, field: Field) -> str:
        """The expression that an absent field is set to. Default structs are shared, so they may be replaced but not
        changed."""
        if field.is_array:
            return "[]" if self._names[f"T{number}"]._default(field) == [] else "None"
        if not field.fields:
            return repr(field.default)
        name = f"default_{number}_{field.name}"
        self._names.setdefault(name, self._names[f"T{number}"]._default(field))
        return name

    def _read_run(self, run: list[Field], inner: dict[str, int]) -> None:
        if len(run) == 1 and not _is_fixed(run[0]):
            self._read_value(1, run[0], inner)
            return
        targets = ", ".join(f"o.{field.name}" for field in run)
        self._read_fixed(1, targets, [field.kind for field in run])

    def _read_fixed(self, depth: int, targets: str, kinds: list[str]) -> None:
        packed = self._packed(kinds)
        self._add(depth, f"{targets}, = {packed}.unpack_from(b, p)", f"p += {self._names[packed].size}")

    def _packed(self, kinds: list[str]) -> str:
        """The name of the ``struct.Struct`` that packs values of these types together."""
        form = "".join(FIXED[kind] for kind in kinds)
        name = "S_" + form.replace("?", "B_")
        self._names[name] = struct.Struct(">" + form)
        return name

    def _read_value(self, depth: int, field: Field, inner: dict[str, int]) -> None:
        target, compact = f"o.{field.name}", "compact_" if self._flexible else ""
        if field.is_array:
            self._read_array(depth, field, inner)
        elif field.fields and self._is_nullable(field):
            self._add(depth, "p += 1", "if b[p - 1] > 127:", f"    {target} = None")
            self._add(depth, "else:", f"    {target}, p = read_{inner[field.name]}(b, p)")
        elif field.fields:
            self._add(depth, f"{target}, p = read_{inner[field.name]}(b, p)")
        elif field.kind == "string":
            nullable = "nullable_" if self._is_nullable(field) else ""
            self._add(depth, f"{target}, p = read_{compact}{nullable}string(b, p)")
        elif field.kind in ("bytes", "records"):
            length = "read_compact_length" if self._flexible else "read_length32"
            read = "read_view" if field.kind == "records" else "read_blob"
            self._add(depth, f"n, p = {length}(b, p)", f"{target}, p = {read}(b, p, n)")
        else:
            self._read_fixed(depth, target, [field.kind])

    def _read_array(self, depth: int, field: Field, inner: dict[str, int]) -> None:
        target, compact = f"o.{field.name}", "compact_" if self._flexible else ""
        if self._flexible:
            self._add(depth, "c = b[p] - 1", "p += 1", "if c > 126: c, p = read_compact_count(b, p - 1)")
        else:
            self._add(depth, "c, p = read_count32(b, p)")
        if self._is_nullable(field):
            self._add(depth, "if c < 0:", f"    {target} = None", "else:")
            depth += 1
        if field.fields:
            self._add(depth, f"{target} = a = []", "for _ in range(c):")
            self._add(depth, f"    x, p = read_{inner[field.name]}(b, p)", "    a.append(x)")
        elif field.kind == "string":
            self._add(depth, f"{target} = a = []", "for _ in range(c):")
            self._add(depth, f"    x, p = read_{compact}string(b, p)", "    a.append(x)")
        elif field.kind in ("bytes", "records"):
            raise NotImplementedError("No message has an array of bytes.")
        elif field.kind == "uuid":
            self._add(depth, f"{target} = a = []", "for _ in range(c):")
            self._add(depth, "    x, p = read_blob(b, p, 16)", "    a.append(x)")
        else:
            self._add(depth, f"{target}, p = read_numbers(b, p, max(c, 0), {FIXED[field.kind]!r})")

    # -- writers

    def _writer(self, number: int, plain: list[Field], tagged: list[Field], inner: dict[str, int]) -> None:
        self._add(0, f"def write_{number}(o, parts):")
        self._add(1, "w = parts[-1]")
        for run in _runs(plain):
            if _is_fixed(run[0]):
                values = ", ".join(f"o.{field.name}" for field in run)
                self._add(1, f"w += {self._packed([field.kind for field in run])}.pack({values})")
            else:
                self._write_value(1, run[0], inner, f"o.{run[0].name}")
        if self._flexible:
            if not tagged:
                self._add(1, "if o.unknown_tags is None: w.append(0)", "else: write_tags(w, o.unknown_tags)")
                return
            self._add(1, "tags = dict(o.unknown_tags or ())")
            for field in tagged:
                default, value = self._default(number, field), f"o.{field.name}"
                is_other = (
                    f"{value} is not {default} and {value} != {default}" if field.fields else f"{value} != {default}"
                )
                self._add(1, f"if {is_other}:")
                self._add(2, "outer, w = w, bytearray()", "parts.append(w)")
                self._write_value(2, field, inner, f"o.{field.name}")
                self._add(2, f"tags[{field.tag}] = parts.pop()", "w = outer")
            self._add(1, "write_tags(w, tags)")

    def _write_value(self, depth: int, field: Field, inner: dict[str, int], value: str) -> None:
        length = "write_compact_length" if self._flexible else "write_length32"
        if field.is_array:
            if self._is_nullable(field):
                self._add(depth, f"if {value} is None:", f"    {length}(w, -1)", "else:")
                depth += 1
            self._write_length(depth, value)
            self._add(depth, f"for x in {value}:")
            if field.fields:
                self._add(depth + 1, f"write_{inner[field.name]}(x, parts)")
                if field.has_records:
                    self._add(depth + 1, "w = parts[-1]")
            else:
                self._write_scalar(depth + 1, field.kind, "x")
        elif field.fields:
            if self._is_nullable(field):
                self._add(depth, f"if {value} is None:", "    w.append(255)", "else:", "    w.append(1)")
                depth += 1
            self._add(depth, f"write_{inner[field.name]}({value}, parts)")
            if field.has_records:
                self._add(depth, "w = parts[-1]")
        elif field.kind == "records":
            self._add(depth, f"if {value} is None:", f"    {length}(w, -1)", "else:")
            self._write_length(depth + 1, value)
            self._add(depth + 1, f"w = records(parts, {value})")
        elif field.kind == "bytes":
            self._add(depth, f"if {value} is None:", f"    {length}(w, -1)", "else:")
            self._write_length(depth + 1, value)
            self._add(depth + 1, f"w += {value}")
        else:
            self._write_scalar(depth, field.kind, value)

    def _write_length(self, depth: int, value: str) -> None:
        if self._flexible:
            self._add(depth, f"n = len({value}) + 1", "if n < 128: w.append(n)", "else: write_uvarint(w, n)")
        else:
            self._add(depth, f"write_length32(w, len({value}))")

    def _write_scalar(self, depth: int, kind: str, value: str) -> None:
        if kind == "string":
            compact = "compact_" if self._flexible else ""
            self._add(depth, f"write_{compact}string(w, {value})")
        else:
            self._add(depth, f"w += {self._packed([kind])}.pack({value})")


def _is_fixed(field: Field) -> bool:
    return field.kind in FIXED and not field.is_array


def _runs(fields: list[Field]) -> Iterator[list[Field]]:
    """Groups adjacent fields of a fixed size, which are read with one call; every other field stands alone."""
    run: list[Field] = []
    for field in fields:
        if _is_fixed(field):
            run.append(field)
            continue
        if run:
            yield run
            run = []
        yield [field]
    if run:
        yield run


def _add_records(parts: Parts, records: Buffer) -> Buffer:
    if len(records) <= _COPIED:
        out = parts[-1]
        out += records  # type: ignore[operator]
        return out
    rest = bytearray()
    parts += (records, rest)
    return rest


def _write_tags(out: bytearray, tags: dict[int, Buffer]) -> None:
    primitives.write_uvarint(out, len(tags))
    for tag in sorted(tags):
        primitives.write_uvarint(out, tag)
        primitives.write_uvarint(out, len(tags[tag]))
        out += tags[tag]
