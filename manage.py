#!/usr/bin/env python
"""Headrace's command line."""

import os
import sys


def main() -> None:
    from backend.runtime.layout import load_environment

    load_environment()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.config.settings.dev")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
