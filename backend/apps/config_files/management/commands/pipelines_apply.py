from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.apps.config_files import services
from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.workspaces.models import Membership, Role, User
from backend.apps.workspaces.selectors import workspace_named
from backend.domain.errors import ConfigError


class Command(BaseCommand):
    help = "Applies the YAML files of a folder to a workspace: all of them, or none if any is rejected."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path)
        parser.add_argument("--workspace", default="", help="its short name; not needed when there is only one")
        parser.add_argument("--prune", action="store_true", help="delete connectors and pipelines that no file names")
        parser.add_argument("--dry-run", action="store_true", help="only report what would be done")
        parser.add_argument("--user", help="the user who makes the change; by default an admin of the workspace")

    def handle(self, *args: Any, **options: Any) -> None:
        workspace = workspace_named(options["workspace"])
        if options["user"]:
            actor = User.objects.filter(username=options["user"]).first()
        else:
            membership = Membership.objects.filter(workspace=workspace, role=Role.ADMIN).first()
            actor = membership.user if membership else None
        if actor is None:
            raise CommandError("There is no such user; name one with --user.")
        files = sorted(options["directory"].rglob("*.yaml"))
        if not files:
            raise CommandError(f"{options['directory']} contains no .yaml file.")
        try:
            documents = [
                document
                for file in files
                for document in services.parse(file.read_text(), str(file.relative_to(options["directory"])))
            ]
            steps = services.apply(
                workspace=workspace,
                actor=actor,
                documents=documents,
                prune=options["prune"],
                dry_run=options["dry_run"],
            )
        except ConfigError as error:
            lines = "\n".join(f"{path}: {' '.join(sentences)}" for path, sentences in error.errors.items())
            raise CommandError(f"Nothing was changed.\n{lines}") from None
        except VaultUnavailableError as error:
            raise CommandError(f"Nothing was changed. {error}") from None
        for step in steps:
            self.stdout.write(f"{step.action:<8}{step.kind} {step.name}")
            if step.action == "update":
                for change in step.changes:
                    self.stdout.write(f"          {change['path']}: {change['before']!r} -> {change['after']!r}")
        verb = "would be done" if options["dry_run"] else "done"
        self.stdout.write(f"{len(steps)} steps {verb}." if steps else "Nothing differs.")
