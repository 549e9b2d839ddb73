from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.apps.demo.services import key_file
from backend.apps.demo.sql import DemoError, SqlDemo
from backend.apps.sql.terminal import UnreachableError


class Command(BaseCommand):
    help = "Joins pageviews in Kafka with users in PostgreSQL by Connect SQL, on the embedded installation that runs."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            SqlDemo(key_file().read_text().strip(), self.stdout.write).run()
        except OSError:
            raise CommandError("The demo needs the embedded installation: start it with `make run`.") from None
        except (DemoError, UnreachableError) as error:
            raise CommandError(str(error)) from None
