from typing import Any

from django.core.management.base import BaseCommand

from backend.runtime.installation import down
from backend.runtime.layout import Layout, var_folder


class Command(BaseCommand):
    help = "Stops the platform. All data is kept."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        down(Layout(var_folder()))
        self.stdout.write("Headrace has been stopped.")
