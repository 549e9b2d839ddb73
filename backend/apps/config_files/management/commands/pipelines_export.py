from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.text import slugify

from backend.apps.config_files import services
from backend.apps.workspaces.selectors import workspace_named


class Command(BaseCommand):
    help = "Writes a workspace's connectors and pipelines to a folder as YAML, with secrets as references."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path)
        parser.add_argument("--workspace", default="", help="its short name; not needed when there is only one")

    def handle(self, *args: Any, **options: Any) -> None:
        written: set[Path] = set()
        for document in services.export(workspace_named(options["workspace"])):
            if is_left_out := document["kind"] == "left_out":
                self.stderr.write(f"{document['object']} {document['name']} was left out. {document['reason']}")
            folder: Path = options["directory"] / ("left_out" if is_left_out else f"{document['kind']}s")
            folder.mkdir(parents=True, exist_ok=True)
            name = slugify(document["name"]) or "unnamed"
            path = folder / f"{name}.yaml"
            for number in range(2, len(written) + 3):
                if path not in written:
                    break
                path = folder / f"{name}-{number}.yaml"
            path.write_text(services.dump([document]))
            written.add(path)
            self.stdout.write(str(path))
