#!/usr/bin/env python
"""Headrace's command line."""

import os
import sys


def main() -> None:
    from backend.network.files import raise_file_limit
    from backend.runtime.layout import load_environment
    from backend.settings import UnknownSettingError, check_names

    raise_file_limit()
    try:
        check_names(os.environ)
    except UnknownSettingError as error:
        sys.exit(str(error))
    if sys.argv[1:2] != ["up"]:  # which makes the environment anew, from what the operator has set
        load_environment()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.config.settings.dev")
    import django
    from django.core.management import execute_from_command_line

    from backend.config.imports import garbage_collection_paused

    with garbage_collection_paused():
        django.setup()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
