"""A pipeline's list of transforms as one function over message bodies."""

from collections.abc import Callable, Sequence

from backend.domain import json
from backend.domain.transforms.base import Transform, TransformError


def compile_chain(transforms: Sequence[Transform]) -> Callable[[bytes], list[bytes]]:
    """Compiles the steps once. The function takes a JSON body and gives the bodies that go on.

    It raises TransformError, naming the step (counted from 1), for a body that is not JSON or
    that a step refuses; no other error can come from a message.
    """
    steps = [(f"Step {n} ({transform.type})", transform.compile()) for n, transform in enumerate(transforms, 1)]  # type: ignore[attr-defined]

    def run(body: bytes) -> list[bytes]:
        try:
            documents = [json.loads(body)]
        except json.InvalidJsonError as error:
            raise TransformError(f"The body is not JSON: {error}") from None
        for name, step in steps:
            try:
                documents = [result for document in documents for result in step(document)]
            except ValueError as error:
                raise TransformError(f"{name}: {error}") from None
        return [json.dumps(document) for document in documents]

    return run
