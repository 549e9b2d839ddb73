"""One registry for all pluggable components; a component is added by adding one file."""

import importlib
import logging
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)

PLUGINS = "HEADRACE_PLUGINS"
"""Environment variable that names a folder with further components: ``connectors/NAME.py``, ``transforms/NAME.py``."""


def type_name(cls: type) -> str:
    """A component's type: its ``type`` attribute, or the default of its pydantic field ``type``."""
    fields = getattr(cls, "model_fields", {})
    return str(fields["type"].default if "type" in fields else cls.type)  # type: ignore[attr-defined]


class UnknownComponentError(LookupError):
    """No component of that type is installed."""


class Registry(Generic[T]):
    """Classes by their ``type``, discovered by importing every module of a package.

    Discovery happens on first use, so that importing the registry loads no vendor library.
    """

    def __init__(self, package: str, *, skip_broken: bool = False) -> None:
        """``skip_broken`` skips a module that cannot be imported and records why in ``broken``; otherwise its
        exception is raised on first use."""
        self._package = package
        self._skip_broken = skip_broken
        self._classes: dict[str, type[T]] = {}
        self._broken: dict[str, str] = {}
        self._discovered = False

    def register(self, cls: type[T]) -> type[T]:
        """Class decorator. Raises ValueError when another class already has this type."""
        name = type_name(cls)
        if name in self._classes:
            raise ValueError(f"Two components of {self._package} have the type {name!r}.")
        self._classes[name] = cls
        return cls

    def get(self, name: str) -> type[T]:
        """The class of that type. Raises UnknownComponentError with the known types."""
        self._discover()
        try:
            return self._classes[name]
        except KeyError:
            known = ", ".join(sorted(self._classes))
            broken = "".join(f" {module} could not be loaded: {reason}." for module, reason in self._broken.items())
            raise UnknownComponentError(f"Unknown type {name!r}; choose one of: {known}.{broken}") from None

    @property
    def broken(self) -> dict[str, str]:
        """Modules that could not be imported, each with its reason."""
        self._discover()
        return dict(self._broken)

    def __iter__(self) -> Iterator[type[T]]:
        self._discover()
        return iter([self._classes[name] for name in sorted(self._classes)])

    def _discover(self) -> None:
        if self._discovered:
            return
        package = importlib.import_module(self._package)
        if plugins := os.environ.get(PLUGINS):
            package.__path__.append(str(Path(plugins) / self._package.rpartition(".")[2]))
        for module in pkgutil.iter_modules(package.__path__, self._package + "."):
            try:
                importlib.import_module(module.name)
            except Exception as error:
                if not self._skip_broken:
                    raise
                log.exception("%s cannot be loaded.", module.name)
                self._broken[module.name] = f"{type(error).__name__}: {error}"
        self._discovered = True
