import json
import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError

from backend.apps.demo.services import demo_facts
from backend.runtime.installation import status
from backend.runtime.layout import Layout, var_folder


class Command(BaseCommand):
    help = "Tells which processes run, which components answer, and where everything is."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="for scripts")

    def handle(self, *args: Any, **options: Any) -> None:
        found = status(Layout(var_folder(), int(os.environ.get("HEADRACE_PORT_OFFSET", "0"))))
        if found["running"]:
            try:
                found["demo"] = demo_facts()
            except DatabaseError:
                found["demo"] = None
        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2))
            return
        if not found["running"]:
            self.stdout.write("Headrace is not running. Start it with `make run`.")
            return
        for process in found["processes"]:
            self.stdout.write(f"{process['name']:<12} {process['state']:<10} pid {process['pid']}")
        for component, state in found["components"].items():
            self.stdout.write(f"{component:<12} {state}")
        for name, endpoint in found["endpoints"].items():
            self.stdout.write(f"{name:<12} {endpoint}")
