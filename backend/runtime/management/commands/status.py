import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError

from backend.apps.demo.services import demo_facts
from backend.runtime.installation import status
from backend.runtime.layout import Layout, var_folder
from backend.settings import EmbeddedSettings


class Command(BaseCommand):
    help = "Shows the processes, the state of each component, and all addresses."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON for scripts")

    def handle(self, *args: Any, **options: Any) -> None:
        facts = status(Layout(var_folder(), EmbeddedSettings().port_offset))
        if facts["running"]:
            try:
                facts["demo"] = demo_facts()
            except DatabaseError:
                facts["demo"] = None
        if options["json"]:
            self.stdout.write(json.dumps(facts, indent=2))
            return
        if not facts["running"]:
            self.stdout.write("Headrace is not running. Start it with `make run`.")
            return
        for process in facts["processes"]:
            self.stdout.write(f"{process['name']:<12} {process['state']:<10} pid {process['pid']}")
        for component, state in facts["components"].items():
            self.stdout.write(f"{component:<12} {state}")
        for name, endpoint in facts["endpoints"].items():
            self.stdout.write(f"{name:<12} {endpoint}")
