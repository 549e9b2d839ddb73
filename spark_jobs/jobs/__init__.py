"""One file per stage, of the stage's name, and those of plugins; ``spark_jobs/main.py`` runs any set of them in one
Spark application."""

import importlib
from types import ModuleType

from backend.domain.registry import add_plugins
from backend.domain.stages import Stage


def module_of(stage: Stage) -> ModuleType:
    """The module that runs the stage. Raises whatever importing it raises."""
    add_plugins(__name__)
    return importlib.import_module(f"{__name__}.{stage.name}")
