"""How much work it is to check a message with a JSON Schema, which bounds the library that does so.

The library checks a value with each part of the schema that applies to it, again for each reference to the part, so
that references double the work with each further one. A part that contains itself it asks about each list and object
once, when it only tells whether a message is valid.

To find out which children are not evaluated, it checks parts once more. Where that leads back to the same question
about a child, the work doubles with each level of the message; schemas that do so are refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from jsonschema_specifications import REGISTRY
from referencing import Resource
from referencing.exceptions import CannotDetermineSpecification, Unresolvable
from referencing.jsonschema import DRAFT202012, UnknownDialect

from backend.domain import limits
from backend.domain.patterns import compiled_size, pattern_size

_TRIED = ("not", "if", "then", "else")
_TRIED_LISTS = ("anyOf", "oneOf")
_TRIED_NAMED = ("dependentSchemas", "dependencies")
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
_ITEMS = ("items", "additionalItems", "prefixItems", "contains")
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
    required: list["_Part"] = field(default_factory=list)
    """Which the same value must match."""
    tried: list["_Part"] = field(default_factory=list)
    """Which the same value is checked with, whether it matches or not."""
    children: list[tuple[Label | None, "_Part"]] = field(default_factory=list)
    """None stands for any child."""
    is_done: bool = False
    is_entered: bool = False
    value: Work = field(default_factory=Work)
    """On the value itself."""
    marking: Work = field(default_factory=Work)
    """To find out which of the value's children were checked."""
    named: dict[Label, Work] = field(default_factory=dict)
    other: Work = field(default_factory=Work)

    @property
    def same(self) -> list["_Part"]:
        """Which the same value is checked with."""
        return [*self.tried, *self.required]

    @property
    def next(self) -> list["_Part"]:
        """Which the value or its children are checked with."""
        return [*self.same, *(child for _, child in self.children)]

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
    """Of a valid schema. Raises TooLargeError, and ValueError for references that cannot be followed or never end."""
    parts = _Parts()
    root = parts.root(schema)
    parts.evaluate(root)
    parts.refuse_endless()
    parts.refuse_doubling()
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
            rest += [(one, False) for one in part.next][::-1]

    def refuse_endless(self) -> None:
        """Raises ValueError if a part is applied to the same value again and again (JSON Schema Core, 9.4.1)."""
        try:
            TopologicalSorter({id(part): map(id, part.same) for part in self.all}).prepare()
        except CycleError:
            raise ValueError("a part of it applies itself to the same value, which never ends") from None

    def refuse_doubling(self) -> None:
        """Raises TooLargeError if finding out what is not evaluated leads to the same question again."""
        for part in self.all:
            if _asks_for_unevaluated(part.schema) and self._leads_to(part, self._checked_again(part)):
                raise limits.TooLargeError(
                    "A part of the schema with unevaluatedProperties or unevaluatedItems contains itself, so that the "
                    "work would double with each level of a message. Use additionalProperties or items instead, or "
                    "refer to the part only in its own properties or items."
                )

    def _checked_again(self, part: _Part) -> list[_Part]:
        """Which parts are checked in order to find out what the part has not evaluated.

        The names of properties tell which of them a required part has evaluated; its items are checked once more.
        """
        asks_for_items = "unevaluatedItems" in part.schema
        found = self._at(part, "contains") if asks_for_items else []
        passed = {id(part): part}
        rest = [part]
        while rest:
            self._count_step()
            one = rest.pop()
            found += [*one.tried, *self._at(one, *_UNEVALUATED)]
            for required in one.required:
                if id(required) not in passed:
                    passed[id(required)] = required
                    rest.append(required)
                    found += self._at(required, *_ITEMS) if asks_for_items else []
        return found

    def _at(self, part: _Part, *keywords: str) -> list[_Part]:
        """The parts that are the values of these keywords, or in the lists that are."""
        if not isinstance(part.schema, dict):
            return []
        values = [part.schema[keyword] for keyword in keywords if keyword in part.schema]
        schemas = [one for value in values for one in (value if isinstance(value, list) else [value])]
        return [self._known[id(one)] for one in schemas if id(one) in self._known]

    def _leads_to(self, part: _Part, starts: list[_Part]) -> bool:
        known = {id(start): start for start in starts}
        rest = list(known.values())
        while rest:
            self._count_step()
            one = rest.pop()
            if one is part:
                return True
            for following in one.next:
                if id(following) not in known:
                    known[id(following)] = following
                    rest.append(following)
        return False

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise limits.TooLargeError("The schema has too many parts that apply to the same value.")

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
        part.tried = [self._part(one, part.resolver) for one in _tried(schema)]
        part.required = [self._part(one, part.resolver) for one in _listed(schema, "allOf")]
        for name in _REFERENCES:
            if isinstance(reference := schema.get(name), str):
                part.required.append(self._referred(reference, part.resolver))
        # Which one is meant depends on the way to the reference: any of those that may have been passed.
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(anchor, []).append(part)
        if isinstance(reference := schema.get("$dynamicRef"), str):
            part.required += [one for one in self._dynamic.get(reference.partition("#")[2], ()) if one not in part.same]
        part.children = [(label, self._part(one, part.resolver)) for label, one in _children(schema)]
        patterns = list(_named(schema, "patternProperties"))
        if isinstance(pattern := schema.get("pattern"), str):
            part.own = Work(matching=self._size(pattern))
        part.other = Work(len(patterns), sum(map(self._size, patterns)))
        part.own = part.own.plus(Work(checks=1 + len(schema) + _compared(schema)))

    def _referred(self, reference: str, resolver: Any) -> _Part:
        try:
            found = resolver.lookup(reference)
        except Unresolvable:
            text = f"the reference {reference} cannot be followed. Copy that definition into $defs instead"
            raise ValueError(text) from None
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
        if _asks_for_unevaluated(part.schema):
            part.value = part.value.plus(marking)
        for place, child in part.children:
            child.is_entered = child.is_entered or not child.is_done
            self._add(part, place, child.all if child.is_done else _ENTRY)

    def _add(self, part: _Part, label: Label | None, work: Work) -> None:
        self._count_step()
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


def _listed(schema: dict[str, Any], name: str) -> Iterator[Any]:
    several = schema.get(name)
    yield from filter(_is_schema, several if isinstance(several, list) else ())


def _tried(schema: dict[str, Any]) -> Iterator[Any]:
    for name in _TRIED:
        if _is_schema(one := schema.get(name)):
            yield one
    for name in _TRIED_LISTS:
        yield from _listed(schema, name)
    for name in _TRIED_NAMED:
        yield from filter(_is_schema, _named(schema, name).values())


def _asks_for_unevaluated(schema: Any) -> bool:
    return isinstance(schema, dict) and any(name in schema for name in _UNEVALUATED)


def _children(schema: dict[str, Any]) -> Iterator[tuple[Label | None, Any]]:
    yield from ((name, one) for name, one in _named(schema, "properties").items() if _is_schema(one))
    yield from ((None, one) for one in _named(schema, "patternProperties").values() if _is_schema(one))
    for name in _ANY_CHILD:
        if _is_schema(one := schema.get(name)):
            yield None, one
    for name in ("prefixItems", "items"):
        yield from enumerate(_listed(schema, name))


def _compared(schema: dict[str, Any]) -> int:
    """Lists and objects of an enum are compared one by one."""
    several = schema.get("enum")
    return sum(isinstance(one, dict | list) for one in several) if isinstance(several, list) else 0
