"""What a transform is, and how a list of them becomes one function."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from backend.domain.model import StrictModel
from backend.domain.registry import Registry

Step = Callable[[Any], Sequence[Any]]
"""Takes a document it may change in place; gives the documents that go on."""


class TransformError(ValueError):
    """A document that a transform cannot handle; the message says why, in the user's terms."""


class Transform(StrictModel, ABC):
    """One configured step. Subclasses add ``type: Literal[...]`` and their fields."""

    example: ClassVar[dict[str, Any]]

    @abstractmethod
    def compile(self) -> Step:
        """The step as a function. It raises TransformError or PathError on a document it refuses."""


transforms: Registry[Transform] = Registry("backend.domain.transforms")
