"""What all types of a schema have in common, and what counts the work that they need."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from backend.domain import limits

_CHOICES = limits.VALUES
"""Limit of the values that are compared with the branches of unions, about a second of work."""


class Type(ABC):
    """A type. Types refer to one another as the schema says, also in circles."""

    def __init__(self, name: str) -> None:
        """``name`` tells the branches of a union apart: that of a named type, or the type's."""
        self.name = name
        self.parts: Sequence[Type] = ()
        self._depth: float | None = None

    def all(self) -> "set[Type]":
        """This type and all that it is made of."""
        found, new = {self}, [self]
        while new:
            more = set(new.pop().parts) - found
            found |= more
            new += more
        return found

    def depth(self) -> float:
        """The most records, arrays and maps in one another; infinite for a type that contains itself."""
        if self._depth is None:
            self._depth = math.inf  # what is met again meanwhile contains itself
            self._depth = self._own_depth + max((part.depth() for part in self.parts), default=0)
        return self._depth

    _own_depth = 1

    def free(self) -> float:
        """The most values without a byte of their own that a byte can be followed by. Raises ValueError for a record
        that contains itself always, which no data are."""
        return 0

    def takes_no_bytes(self) -> bool:
        """Whether all its data are empty."""
        return False

    @abstractmethod
    def enter(self, scan: "Scan") -> "Iterator[Type] | None":
        """Passes over a datum, or over its beginning: then it gives the types that follow within it."""

    def fits(self, value: Any, preparation: "Preparation", depth: int) -> bool:
        """Whether the library takes a JSON value for one of this type when it chooses the branch of a union."""
        if isinstance(value, dict | list):
            return preparation.fits(self, value, depth)
        return self.compare(value, preparation, depth)

    @abstractmethod
    def compare(self, value: Any, preparation: "Preparation", depth: int) -> bool:
        """As ``fits``, of which it is what differs between types."""

    @abstractmethod
    def prepared(self, value: Any, preparation: "Preparation", depth: int) -> Any:
        """A JSON value as the library writes it without searching: unions have their branch, defaults are filled in.
        Raises MisfitError, TooLargeError."""

    @abstractmethod
    def is_datum(self, datum: Any) -> bool:
        """Whether a native value in a union may be one of this type; those of named types bear their names."""

    @abstractmethod
    def plain(self, datum: Any, preparation: "Preparation") -> Any:
        """The native value as JSON, of which ``prepared`` makes it again. Raises MisfitError."""


class Scan:
    """Passes over data and counts its values. Nothing in it is recursive."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._values = 0

    def pass_over(self, root: Type) -> int:
        """The position behind the datum. Raises ValueError, TooLargeError among them."""
        levels = [iter((root,))]
        try:
            while levels:
                part = next(levels[-1], None)
                if part is None:
                    levels.pop()
                    continue
                self.count(1)
                within = part.enter(self)
                if within is not None:
                    limits.check_depth(len(levels))
                    levels.append(within)
        except IndexError:
            raise wrong("it ends early") from None
        return self._at

    def count(self, values: int) -> None:
        self._values += values
        limits.check_values(self._values)

    def skip(self, size: int) -> None:
        if size < 0:
            raise wrong("a length is negative")
        self.expect(size)
        self._at += size

    def expect(self, size: int) -> None:
        """Raises ValueError if fewer bytes are left."""
        if size > len(self._data) - self._at:
            raise wrong("a length leads beyond its end")

    def long(self) -> int:
        """The next integer. Section "Binary Encoding": zig-zag, seven bits a byte, the lowest first."""
        byte = self._data[self._at]
        self._at += 1
        number, shift = byte & 0x7F, 7
        while byte & 0x80:
            if shift > 63:
                raise wrong("an integer has more than ten bytes")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
        return (number >> 1) ^ -(number & 1)


class Preparation:
    """Counts what a document needs while it is written."""

    def __init__(self) -> None:
        self._choices = 0
        self._defaults = 0
        self._fits: dict[tuple[bool, int, int], bool] = {}
        self._kept: list[Any] = []
        self.is_lenient = False
        """Whether also JSON fits that the library does not take as it is, such as the texts of bytes and of times."""

    def keep(self, value: Any) -> Any:
        """The value, which is compared and so has to stay what its id says."""
        self._kept.append(value)
        return value

    def fits(self, type_: Type, value: Any, depth: int) -> bool:
        """Whether a list or object fits. It is compared once with each type: the library does it anew within each
        union around it."""
        limits.check_depth(depth + 1)
        compared = (self.is_lenient, id(type_), id(value))
        if compared not in self._fits:
            self._fits[compared] = type_.compare(value, self, depth)
        return self._fits[compared]

    def count_choices(self, choices: int) -> None:
        self._choices += choices
        if self._choices > _CHOICES:
            raise limits.TooLargeError(f"The message needs more than {_CHOICES:,} choices between branches of unions.")

    def add_default(self, size: int) -> None:
        self._defaults += size
        limits.check_body(self._defaults)

    @property
    def defaults(self) -> int:
        return self._defaults


def wrong(how: str) -> ValueError:
    """The error of data that are none of the schema's type."""
    return ValueError(f"This is not Avro data of the given schema: {how}.")
