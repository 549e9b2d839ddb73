"""How much work it is to check a message with a JSON Schema, which bounds the library that does so.

The library checks a value with each part of the schema that applies to it, again for each reference to the part, so
that references double the work with each further one. A part that contains itself it asks about each list and object
once, when it only tells whether a message is valid.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jsonschema_specifications import REGISTRY
from referencing import Resource
from referencing.exceptions import CannotDetermineSpecification, Unresolvable
from referencing.jsonschema import DRAFT202012, UnknownDialect

from backend.domain import limits
from backend.domain.patterns import compiled_size, pattern_size

_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY_CHILD = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
)
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_MAX_CHECKS = 1_000_000
_MAX_COMPILED = 5_000_000
_MAX_STEPS = 300_000
_CAP = 10**15

Label = str | int
"""The name or position of the children that a part applies to."""


class Work(NamedTuple):
    """For one value in the worst case."""

    checks: int = 0
    """With parts of the schema."""
    matching: int = 0
    """The sizes of the regular expressions that a text is matched with."""
    entries: int = 0
    """Of parts that contain themselves."""

    def plus(self, other: "Work") -> "Work":
        return Work(*(min(_CAP, one + another) for one, another in zip(self, other, strict=True)))

    def most(self, other: "Work") -> "Work":
        return Work(*map(max, self, other))


@dataclass(eq=False)
class _Part:
    """A subschema: what it does to the value that it is applied to, and to the value's children."""

    schema: Any
    resolver: Any
    own: Work = field(default_factory=Work)
    same: list["_Part"] = field(default_factory=list)
    children: list[tuple[Label | None, "_Part"]] = field(default_factory=list)
    """None stands for any child."""
    unevaluated: bool = False
    is_done: bool = False
    is_entered: bool = False
    value: Work = field(default_factory=Work)
    """On the value itself."""
    marking: Work = field(default_factory=Work)
    """To find out which of the value's children were checked."""
    named: dict[Label, Work] = field(default_factory=dict)
    other: Work = field(default_factory=Work)

    @property
    def all(self) -> Work:
        """On any one value: this one or one in it, with what leads there."""
        children = Work()
        for work in self.named.values():
            children = children.most(work)
        return self.value.plus(self.other).plus(children)


@dataclass(frozen=True)
class SchemaWork:
    checks: int
    """Of one value with parts of the schema, at most."""
    matching: int
    """The sizes of the regular expressions that one text is matched with, in total."""
    doubles: bool
    """Whether errors may double with each level of a message: those of parts that contain themselves are made again."""

    def check(self, document: Any) -> None:
        """Raises TooLargeError if the message is too large for the schema."""
        if self.checks * limits.VALUES > limits.CHECKS:
            most = limits.CHECKS // self.checks
            if limits.count_values(document, most) > most:
                raise limits.TooLargeError(
                    f"The message has more than {most:,} values, each of which the JSON Schema may check "
                    f"{self.checks:,} times."
                )
        if self.matching * limits.BODY_BYTES > limits.MATCHING:
            most = limits.MATCHING // self.matching
            if limits.count_text(document) > most:
                raise limits.TooLargeError(
                    f"The message has texts of more than {most:,} characters, too many for the regular expressions of "
                    "the JSON Schema."
                )


def schema_work(schema: Any) -> SchemaWork:
    """Of a valid schema. Raises TooLargeError, and ValueError for a reference that cannot be followed."""
    parts = _Parts()
    root = parts.root(schema)
    parts.evaluate(root)
    total = root.all
    entered = [part for part in parts.all if part.is_entered]
    for part in entered:
        total = total.plus(part.all)
    # Texts and numbers are checked again at each entry, unlike lists and objects.
    checks = max((part.value.checks for part in entered), default=0)
    matching = max((part.value.matching for part in entered), default=0)
    work = SchemaWork(
        checks=total.checks + total.entries * checks,
        matching=total.matching + total.entries * matching,
        doubles=any(part.all.entries > 1 for part in parts.all),
    )
    if work.checks > _MAX_CHECKS:
        raise limits.TooLargeError(
            f"A value of a message would be checked more than {_MAX_CHECKS:,} times. Refer to each definition fewer "
            "times in allOf, anyOf, oneOf and other definitions."
        )
    return work


class _Parts:
    """All parts that are reached from the root, each once."""

    def __init__(self) -> None:
        self._known: dict[int, _Part] = {}
        self._steps = 0
        self._dynamic: dict[str, list[_Part]] = {}
        self._patterns: set[str] = set()
        self._compiled = 0

    @property
    def all(self) -> list[_Part]:
        return list(self._known.values())

    def root(self, schema: Any) -> _Part:
        try:
            resource = Resource.from_contents(schema, default_specification=DRAFT202012)
        except (CannotDetermineSpecification, UnknownDialect):
            resource = DRAFT202012.create_resource(schema)
        uri = resource.id() or ""
        return self._part(schema, REGISTRY.with_resource(uri, resource).resolver(uri))

    def evaluate(self, root: _Part) -> None:
        """Without recursion, since schemas may be nested as deeply as JSON."""
        begun: dict[int, None] = {}
        rest: list[tuple[_Part, bool]] = [(root, False)]
        while rest:
            part, is_last_visit = rest.pop()
            if is_last_visit:
                self._sum_up(part)
                part.is_done = True
                continue
            if id(part) in begun:
                continue
            begun[id(part)] = None
            self._expand(part)
            rest.append((part, True))
            # The first one is followed first, as the library does.
            rest += [(one, False) for one in (*part.same, *(child for _, child in part.children))][::-1]

    def _part(self, schema: Any, resolver: Any) -> _Part:
        part = self._known.get(id(schema))
        if part is None:
            part = self._known[id(schema)] = _Part(schema, resolver)
        return part

    def _expand(self, part: _Part) -> None:
        schema = part.schema
        if not isinstance(schema, dict):
            part.own = Work(checks=1)
            return
        part.resolver = part.resolver.in_subresource(DRAFT202012.create_resource(schema))
        part.same = [self._part(one, part.resolver) for one in _same_value(schema)]
        for name in _REFERENCES:
            if isinstance(reference := schema.get(name), str):
                part.same.append(self._referred(reference, part.resolver))
        # Which one is meant depends on the way to the reference: any of those that may have been passed.
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(anchor, []).append(part)
        if isinstance(reference := schema.get("$dynamicRef"), str):
            part.same += [one for one in self._dynamic.get(reference.partition("#")[2], ()) if one not in part.same]
        part.children = [(label, self._part(one, part.resolver)) for label, one in _children(schema)]
        part.unevaluated = any(name in schema for name in _UNEVALUATED)
        patterns = list(_named(schema, "patternProperties"))
        if isinstance(pattern := schema.get("pattern"), str):
            part.own = Work(matching=self._size(pattern))
        part.other = Work(len(patterns), sum(map(self._size, patterns)))
        part.own = part.own.plus(Work(checks=1 + len(schema) + _compared(schema)))

    def _referred(self, reference: str, resolver: Any) -> _Part:
        try:
            found = resolver.lookup(reference)
        except Unresolvable:
            raise ValueError(f"the reference {reference} cannot be followed") from None
        return self._part(found.contents, found.resolver)

    def _size(self, pattern: str) -> int:
        if pattern not in self._patterns:
            self._patterns.add(pattern)
            self._compiled += compiled_size(pattern)
        if self._compiled > _MAX_COMPILED:
            raise limits.TooLargeError(
                "The regular expressions of the schema are too large together. Lower their repetitions, or write [a-z] "
                "for \\w."
            )
        size = pattern_size(pattern)
        if size > limits.PATTERN_SIZE:
            raise limits.TooLargeError(
                f"A regular expression has more than {limits.PATTERN_SIZE:,} steps, where {{1000}} repeats a step as "
                "often. Lower the repetitions, or use minLength and maxLength."
            )
        return size

    def _sum_up(self, part: _Part) -> None:
        part.value, marking = part.own, Work()
        for one in part.same:
            if not one.is_done:
                one.is_entered = True
                part.value = part.value.plus(_ENTRY)
                continue
            part.value = part.value.plus(one.value)
            marking = marking.plus(one.value).plus(one.marking)
            part.other = part.other.plus(one.other)
            for label, work in one.named.items():
                self._add(part, label, work)
        part.marking = marking
        if part.unevaluated:
            part.value = part.value.plus(marking)
        for place, child in part.children:
            child.is_entered = child.is_entered or not child.is_done
            self._add(part, place, child.all if child.is_done else _ENTRY)

    def _add(self, part: _Part, label: Label | None, work: Work) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise limits.TooLargeError("The schema has too many parts that apply to the same value.")
        if label is None:
            part.other = part.other.plus(work)
        else:
            part.named[label] = part.named.get(label, Work()).plus(work)


_ENTRY = Work(checks=1, entries=1)


def _named(schema: dict[str, Any], name: str) -> dict[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, dict) else {}


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _same_value(schema: dict[str, Any]) -> Iterator[Any]:
    for name in _SAME_VALUE:
        if _is_schema(one := schema.get(name)):
            yield one
    for name in _SAME_VALUE_LISTS:
        if isinstance(several := schema.get(name), list):
            yield from filter(_is_schema, several)
    for name in _SAME_VALUE_NAMED:
        yield from filter(_is_schema, _named(schema, name).values())


def _children(schema: dict[str, Any]) -> Iterator[tuple[Label | None, Any]]:
    yield from ((name, one) for name, one in _named(schema, "properties").items() if _is_schema(one))
    yield from ((None, one) for one in _named(schema, "patternProperties").values() if _is_schema(one))
    for name in _ANY_CHILD:
        if _is_schema(one := schema.get(name)):
            yield None, one
    for name in ("prefixItems", "items"):
        if isinstance(several := schema.get(name), list):
            yield from ((place, one) for place, one in enumerate(several) if _is_schema(one))


def _compared(schema: dict[str, Any]) -> int:
    """Lists and objects of an enum are compared one by one."""
    several = schema.get("enum")
    return sum(isinstance(one, dict | list) for one in several) if isinstance(several, list) else 0
