"""Django's command, without the limit for statements: a migration may rewrite large tables."""

from typing import Any

from django.core.management.commands import migrate

from backend.network.postgresql import answers_within


class Command(migrate.Command):
    @answers_within(None)
    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
