"""Creates the secrets of a new installation in a folder: ``python -m backend.runtime.secret_files FOLDER``.

The folder is the one that ``HEADRACE_SECRETS_DIR`` names afterwards. Files that exist are kept.
"""

import os
import secrets
import sys
from pathlib import Path

from backend.apps.connectors.secrets import create_keys_file
from backend.runtime.layout import write_private

RANDOM_SECRETS = ("service_token", "django_secret_key", "database_password", "admin_password")
"""The settings whose first value is a random text."""


def main(folder: Path) -> None:
    for name in RANDOM_SECRETS:
        path = folder / f"headrace_{name}"
        if not path.exists():
            unfinished = path.with_suffix(".new")
            write_private(unfinished, secrets.token_urlsafe(32))
            os.replace(unfinished, path)
    keys = folder / "secret-keys.json"
    if not keys.exists():
        create_keys_file(keys)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
