from collections.abc import Callable, Iterator
from typing import Any, Literal

from pydantic import Field

from backend.domain import limits, paths
from backend.domain.transforms.base import Step, Transform, TransformError, on_missing, transforms


@transforms.register
class Flatten(Transform):
    """Flattens nested objects: {"a": {"b": 1}} becomes {"a_b": 1}. Two fields that would have one name are an error."""

    example = {"type": "flatten", "separator": "_"}

    type: Literal["flatten"] = "flatten"
    path: paths.FieldPath | None = Field(None, description="Object to flatten; if empty, the whole message.")
    separator: str = Field("_", min_length=1, max_length=10, description="Separator between the names.")
    lists: bool = Field(False, description="Also flatten lists, with their elements numbered from 0.")

    def compile(self) -> Step:
        steps = paths.parse_path(self.path) if self.path else ()
        missing = on_missing(self.path or "", "skip")
        flat = self._flattener()

        def step(document: Any) -> Any:
            nested = paths.get(document, steps)
            if nested is paths.MISSING:
                return missing(document)
            if not isinstance(nested, dict):
                raise TransformError(f"{self.path or 'The message'} is not an object.")
            written = flat(nested)
            if steps:
                paths.put(document, steps, written)
            else:
                document = written
            limits.check_growth(document, written)
            return (document,)

        return step

    def _flattener(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def walk(value: Any, name: str, place: str) -> Iterator[tuple[str, str, Any]]:
            if isinstance(value, dict) and value:
                children = list(value.items())
            elif isinstance(value, list) and value and self.lists:
                children = [(str(index), element) for index, element in enumerate(value)]
            else:
                yield name, place, value
                return
            for key, child in children:
                yield from walk(child, f"{name}{self.separator}{key}" if place else key, f"{place}/{key}")

        def flat(nested: dict[str, Any]) -> dict[str, Any]:
            made: dict[str, Any] = {}
            size = 0
            for name, place, value in walk(nested, "", "") if nested else ():
                size += len(name)
                limits.check_body(size)
                if name in made:
                    first = next(other for flat, other, _ in walk(nested, "", "") if flat == name)
                    raise TransformError(f"{first} and {place} would both become {name}: choose another separator.")
                made[name] = value
            return made

        return flat
