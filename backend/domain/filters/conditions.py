"""Conditions on indexed fields: models that are compiled to functions once."""

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Union

import re2
from pydantic import Field, field_validator

from backend.domain.comparison import exact, kind_of
from backend.domain.model import StrictModel
from backend.domain.patterns import check_pattern

Index = dict[str, Any]
"""The indexed fields of a message, by name."""

Predicate = Callable[[Index], bool]
Scalar = str | int | float | bool

_EARTH_KILOMETRES = 6371.0088
_NO_BACKTRACKING = re2.Options()
_NO_BACKTRACKING.log_errors = False
_NO_BACKTRACKING.max_mem = 1 << 20


class FieldCondition(StrictModel):
    """A condition on one field. A message without the field does not match."""

    field: str = Field(min_length=1, max_length=63, description="Name of the indexed field.", examples=["country"])


class Equals(FieldCondition):
    """The field equals this value."""

    type: Literal["equals"] = "equals"
    value: Scalar = Field(description="Text, number, true or false.")

    def compile(self) -> Predicate:
        field, value, kind = self.field, exact(self.value), kind_of(self.value)
        return lambda index: (actual := index.get(field)) == value and kind_of(actual) == kind


class NotEquals(FieldCondition):
    """The field is present and has a different value."""

    type: Literal["not_equals"] = "not_equals"
    value: Scalar = Field(description="Text, number, true or false.")

    def compile(self) -> Predicate:
        equals = Equals(field=self.field, value=self.value).compile()
        return lambda index: index.get(self.field) is not None and not equals(index)


class Comparison(FieldCondition):
    """Compares numbers or texts. Times are compared as text: write them in UTC, such as 2026-01-31T00:00:00Z."""

    type: Literal["less_than", "less_or_equal", "greater_than", "greater_or_equal"]
    value: str | int | float = Field(description="Number or text to compare with.")

    ORDER: ClassVar[dict[str, Callable[[Any, Any], bool]]] = {
        "less_than": operator.lt,
        "less_or_equal": operator.le,
        "greater_than": operator.gt,
        "greater_or_equal": operator.ge,
    }

    def compile(self) -> Predicate:
        field, value, kind, order = self.field, exact(self.value), kind_of(self.value), self.ORDER[self.type]
        return lambda index: kind_of(actual := index.get(field)) == kind and order(actual, value)


class In(FieldCondition):
    """The field equals one of these values."""

    type: Literal["in"] = "in"
    values: list[Scalar] = Field(min_length=1, max_length=1000, description="Texts, numbers, true or false.")

    def compile(self) -> Predicate:
        field, values = self.field, {(kind_of(value), exact(value)) for value in self.values}
        return lambda index: _is_scalar(actual := index.get(field)) and (kind_of(actual), actual) in values


class Prefix(FieldCondition):
    """The field's text starts with this prefix."""

    type: Literal["prefix"] = "prefix"
    value: str = Field(min_length=1, max_length=500, description="The prefix.")

    def compile(self) -> Predicate:
        field, value = self.field, self.value
        return lambda index: isinstance(text := index.get(field), str) and text.startswith(value)


class Regex(FieldCondition):
    """The regular expression (RE2, which runs in linear time) matches somewhere in the field's text."""

    type: Literal["regex"] = "regex"
    pattern: str = Field(
        min_length=1, max_length=500, description="Regular expression in RE2 syntax.", examples=["^[A-Z]{2}-[0-9]+$"]
    )

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            re2.compile(pattern, _NO_BACKTRACKING)
        except re2.error as error:
            raise ValueError(f"This is not a valid RE2 regular expression: {error}") from None
        check_pattern(pattern)
        return pattern

    def compile(self) -> Predicate:
        field, search = self.field, re2.compile(self.pattern, _NO_BACKTRACKING).search
        return lambda index: isinstance(text := index.get(field), str) and search(text) is not None


class Exists(FieldCondition):
    """The field is present."""

    type: Literal["exists"] = "exists"

    def compile(self) -> Predicate:
        field = self.field
        return lambda index: index.get(field) is not None


class Near(FieldCondition):
    """The field's location lies within this distance, measured along the earth's surface."""

    type: Literal["near"] = "near"
    latitude: float = Field(ge=-90, le=90, description="Latitude in degrees north.")
    longitude: float = Field(ge=-180, le=180, description="Longitude in degrees east.")
    kilometres: float = Field(gt=0, le=20_040, description="Largest distance, in kilometres.")

    def compile(self) -> Predicate:
        field, here, limit = self.field, (self.latitude, self.longitude), self.kilometres

        def near(index: Index) -> bool:
            location = index.get(field)
            return isinstance(location, list) and distance(here, (float(location[0]), float(location[1]))) <= limit

        return near


class All(StrictModel):
    """All of the conditions match."""

    type: Literal["all"] = "all"
    conditions: list["Condition"] = Field(min_length=1, max_length=50, description="Conditions that must all match.")

    def compile(self) -> Predicate:
        return every([condition.compile() for condition in self.conditions])


class Any_(StrictModel):
    """At least one of the conditions matches."""

    type: Literal["any"] = "any"
    conditions: list["Condition"] = Field(
        min_length=1, max_length=50, description="Conditions of which at least one must match."
    )

    def compile(self) -> Predicate:
        parts = [condition.compile() for condition in self.conditions]

        def some(index: Index) -> bool:
            for part in parts:  # noqa: SIM110
                if part(index):
                    return True
            return False

        return some


class Not(StrictModel):
    """The condition does not match."""

    type: Literal["not"] = "not"
    condition: "Condition" = Field(description="Condition that must not match.")

    def compile(self) -> Predicate:
        part = self.condition.compile()
        return lambda index: not part(index)


Condition = Annotated[
    Union[Equals, NotEquals, Comparison, In, Prefix, Regex, Exists, Near, All, Any_, Not],  # noqa: UP007
    Field(discriminator="type", title="Condition"),
]

for _model in (All, Any_, Not):
    _model.model_rebuild()


def every(parts: list[Predicate]) -> Predicate:
    """A predicate that holds if all of ``parts`` do; there is at least one."""
    if len(parts) == 1:
        return parts[0]

    def met(index: Index) -> bool:
        for part in parts:  # noqa: SIM110  (all() takes twice as long)
            if not part(index):
                return False
        return True

    return met


def distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The distance between two points (latitude, longitude), in kilometres on a sphere (haversine formula)."""
    (lat1, lon1), (lat2, lon2) = (tuple(map(math.radians, place)) for place in (one, other))
    half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * _EARTH_KILOMETRES * math.asin(math.sqrt(min(1.0, half)))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | Decimal)
