from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.runtime.installation import reset
from backend.runtime.layout import Layout, var_folder


class Command(BaseCommand):
    help = "Stops the platform and deletes all of its data on this machine."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--yes", action="store_true", help="skip the confirmation")

    def handle(self, *args: Any, **options: Any) -> None:
        layout = Layout(var_folder())
        if not options["yes"] and input(f"Delete all data in {layout.var}? Type yes: ") != "yes":
            raise CommandError("Nothing was deleted.")
        reset(layout)
        self.stdout.write("All data has been deleted.")
