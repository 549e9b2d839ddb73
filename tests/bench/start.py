"""The CPU that each process takes to import what it starts with, as a multiple of bare Django's."""

import resource
import statistics
import subprocess
import sys

from backend.settings import ROOT
from tests.processes import PROCESSES

BARE = """
from django.conf import settings
apps = ["admin", "auth", "contenttypes", "sessions", "messages", "staticfiles"]
settings.configure(
    INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "rest_framework"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
)
import django
django.setup()
from django.contrib import admin
from django.core.asgi import get_asgi_application
from rest_framework import routers, serializers, viewsets
get_asgi_application()
"""
"""Django with its admin site and the REST framework, and nothing of Headrace."""
TARGETS = {"console": 1.5, "manager": 1.5, "worker": 1.5, "ingest": 0.7}
"""Multiples of bare Django's CPU time."""
_RUNS = 5


def cpu_seconds(script: str) -> float:
    """Of a new process that runs the script."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start_costs() -> dict[str, tuple[float, float]]:
    """By process, the median of its CPU seconds, and as a multiple of bare Django's. Runs take turns."""
    scripts = {"bare Django": BARE, **PROCESSES}
    runs: dict[str, list[float]] = {name: [] for name in scripts}
    for turn in range(_RUNS + 1):
        for name, script in scripts.items():
            seconds = cpu_seconds(script)
            if turn:  # the first one may compile modules
                runs[name].append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in runs.items()}
    return {name: (seconds, seconds / medians["bare Django"]) for name, seconds in medians.items()}


def table(costs: dict[str, tuple[float, float]]) -> str:
    rows = [
        f"| {name} | {seconds:.2f} s | {multiple:.2f} | {TARGETS.get(name, '')} |"
        for name, (seconds, multiple) in costs.items()
    ]
    return "\n".join(["| process | CPU to import | of bare Django | at most |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(table(start_costs()))
