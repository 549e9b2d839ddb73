import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.runtime.doctor import examine


class Command(BaseCommand):
    help = "Checks everything that the installation depends on, and says what to do."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print what was found as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        findings = examine()
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings]))
        else:
            for finding in findings:
                state = self.style.ERROR("FAIL") if finding.problem else self.style.SUCCESS("ok  ")
                self.stdout.write(f"{state}  {finding.part:<12}{finding.problem or finding.detail}")
        if wrong := [finding.part for finding in findings if finding.problem]:
            raise CommandError(f"Not well: {', '.join(wrong)}.")
