"""Unions, and which of its branches a value is."""

from collections.abc import Iterator
from typing import Any

from backend.domain import json
from backend.domain.avro.complex_types import Record
from backend.domain.avro.plain_types import PlainType
from backend.domain.avro.scalars import PRIMITIVES, MisfitError
from backend.domain.avro.types import Preparation, Scan, Type, wrong

_ONE = ({PRIMITIVES["int"], PRIMITIVES["long"]}, {PRIMITIVES["float"], PRIMITIVES["double"]})
"""Types of which the same JSON is made."""


class Union(Type):
    """Section "Unions": the position of the branch, and a datum of it."""

    _own_depth = 0

    def enter(self, scan: Scan) -> Iterator[Type] | None:
        position = scan.long()
        if not 0 <= position < len(self.parts):
            raise wrong(f"a union has no branch {position}")
        return self.parts[position].enter(scan)

    def compare(self, value: Any, preparation: Preparation, depth: int) -> bool:
        preparation.count_choices(len(self.parts))
        for branch in self.parts:
            if branch.fits(value, preparation, depth):
                return True
        if preparation.is_lenient and isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for branch in self.parts:
                if branch.name == name and branch.fits(inner, preparation, depth):
                    return True
        return False

    def prepared(self, value: Any, preparation: Preparation, depth: int) -> Any:
        branch = self._branch(value, preparation, depth)
        if branch is None:
            branch, value = self._tagged(value)
        return branch.name, branch.prepared(value, preparation, depth)

    def is_datum(self, datum: Any) -> bool:
        return any(branch.is_datum(datum) for branch in self.parts)

    def plain(self, datum: Any, preparation: Preparation) -> Any:
        """Tagged with the branch's name, as in Avro's own JSON, where it would be taken for a value of another."""
        branch = next(part for part in self.parts if part.is_datum(datum))
        plain = preparation.keep(branch.plain(datum[1] if isinstance(datum, tuple) else datum, preparation))
        if len(self.parts) <= 2 and "null" in {part.name for part in self.parts}:
            return plain
        if _are_one(self._branch(plain, preparation, 0), branch):
            return plain
        tagged = preparation.keep({branch.name: plain})
        if self._branch(tagged, preparation, 0) is not None:
            raise MisfitError(f"JSON cannot tell the branches of the union of {self._names} apart")
        return tagged

    @property
    def _names(self) -> str:
        return f"{', '.join(part.name for part in self.parts):.200}"

    def _tagged(self, value: Any) -> tuple[Type, Any]:
        """The branch that the value names or is meant for, with the value in it. Raises MisfitError."""
        if isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for branch in self.parts:
                if branch.name == name:
                    return branch, inner
        others = [branch for branch in self.parts if branch.name != "null"]
        if value is not None and len(others) == 1:
            return others[0], value  # its error says more
        raise MisfitError(f"no branch of the union of {self._names} fits {json.text(value):.200}")

    def _branch(self, value: Any, preparation: Preparation, depth: int) -> Type | None:
        """The library's choice, or else the first that can be made of the JSON."""
        found = self._chosen(value, preparation, depth)
        if found is None and not preparation.is_lenient:
            preparation.is_lenient = True
            try:
                found = self._chosen(value, preparation, depth)
            finally:
                preparation.is_lenient = False
        return found

    def _chosen(self, value: Any, preparation: Preparation, depth: int) -> Type | None:
        """The library's choice: the first branch that fits, of records the one with the most of its fields, and double
        rather than float."""
        preparation.count_choices(len(self.parts))
        found: Type | None = None
        most = -1
        for branch in self.parts:
            if found is not None and found.name == "float" and branch.name != "double":
                continue
            if not branch.fits(value, preparation, depth):
                continue
            if isinstance(branch, Record):
                fields = branch.fields_in(value)
                if fields > most:
                    found, most = branch, fields
                continue
            found = branch
            if branch.name != "float":
                break
        return found


def _are_one(chosen: Type | None, branch: Type) -> bool:
    """Whether the choice makes the same JSON of it: integers and floats of both widths do."""
    if isinstance(chosen, PlainType) and isinstance(branch, PlainType):
        return any({chosen.scalar, branch.scalar} <= width for width in _ONE) or chosen is branch
    return chosen is branch
