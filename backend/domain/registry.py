"""One registry for all pluggable components; a component is added by adding one file."""

import importlib
import logging
import os
import pkgutil
from collections.abc import Iterator, MutableSequence
from pathlib import Path
from typing import Generic, TypeVar

from backend.domain.errors import error_sentence

T = TypeVar("T")
log = logging.getLogger(__name__)

PLUGINS = "HEADRACE_PLUGINS"
"""Environment variable that names a folder with further components: ``connectors/NAME.py``, ``transforms/NAME.py``, and
for a stage both ``stages/NAME.py`` and ``jobs/NAME.py``."""


def add_plugins(package: str) -> MutableSequence[str]:
    """Makes the folder of its name in ``HEADRACE_PLUGINS`` a part of the package, after the package's own; returns the
    folders that it has."""
    path = importlib.import_module(package).__path__
    if plugins := os.environ.get(PLUGINS):
        folder = str(Path(plugins) / package.rpartition(".")[2])
        if folder not in path:
            path.append(folder)
    return path


def module_names(package: str) -> list[str]:
    """The modules of a package, with those that plugins add."""
    return [module.name for module in pkgutil.iter_modules(add_plugins(package), f"{package}.")]


def load_failure(module: str, error: Exception) -> str:
    """Why the module cannot be loaded, in a sentence. Called while the exception is handled, which is logged."""
    log.exception("%s cannot be loaded.", module)
    return f"The module {module} cannot be loaded: {error_sentence(error)}"


def type_name(cls: type) -> str:
    """A component's type: its ``type`` attribute, or the default of its pydantic field ``type``."""
    fields = getattr(cls, "model_fields", {})
    return str(fields["type"].default if "type" in fields else cls.type)  # type: ignore[attr-defined]


class UnknownComponentError(LookupError):
    """No component of that type is installed."""


class BrokenComponentError(UnknownComponentError):
    """The component is installed, but its module cannot be imported; the message says why."""


class Registry(Generic[T]):
    """Classes by their ``type``, discovered by importing every module of a package.

    Discovery happens on first use, so that importing the registry loads no vendor library.
    """

    def __init__(self, package: str, *, skip_broken: bool = False) -> None:
        """``skip_broken`` records in ``broken`` why a module cannot be imported; otherwise its exception is raised on
        first use."""
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
        """The class of that type. Raises BrokenComponentError, or UnknownComponentError with the known types."""
        self._discover()
        if name in self._classes:
            return self._classes[name]
        if name in self._broken:
            raise BrokenComponentError(f"The type {name!r} cannot be used. {self._broken[name]}")
        known = ", ".join(sorted(self._classes))
        # One whose module failed before it named its type may be the one that is looked for.
        broken = "".join(f" {reason}" for reason in dict.fromkeys(self._broken.values()))
        raise UnknownComponentError(f"Unknown type {name!r}; choose one of: {known}.{broken}")

    @property
    def broken(self) -> dict[str, str]:
        """The types whose modules cannot be imported, each with the reason in a sentence. A module that failed before
        it registered a type stands there under its own name."""
        self._discover()
        return dict(self._broken)

    def __iter__(self) -> Iterator[type[T]]:
        self._discover()
        return iter([self._classes[name] for name in sorted(self._classes)])

    def _discover(self) -> None:
        if self._discovered:
            return
        failed: dict[str, str] = {}
        for module in module_names(self._package):
            try:
                importlib.import_module(module)
            except Exception as error:
                if not self._skip_broken:
                    raise
                failed[module] = load_failure(module, error)
        for name, reason in failed.items():
            self._break(name, reason)
        self._discovered = True

    def _break(self, module: str, reason: str) -> None:
        """Takes out what the module registered before it failed, since what it was to do later is missing."""
        types = [name for name, cls in self._classes.items() if f"{cls.__module__}.".startswith(f"{module}.")]
        for name in types:
            del self._classes[name]
        own_name = module.rpartition(".")[2]
        for name in types or [module if own_name in self._classes else own_name]:
            self._broken[name] = reason
