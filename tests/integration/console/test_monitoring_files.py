"""The alert rules and the dashboard ask for metrics that exist."""

import json
import re

import pytest
import yaml

from backend.apps.monitoring.prometheus import exposition
from backend.settings import ROOT

FOLDER = ROOT / "docker/monitoring"


def expressions() -> list[str]:
    [group] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [rule["expr"] for rule in group["rules"]] + panels


@pytest.mark.django_db
@pytest.mark.usefixtures("redis_server", "kafka")
def test_every_metric_exists() -> None:
    known = set(re.findall(r"^# TYPE (\w+) ", exposition().decode(), re.MULTILINE))
    known |= {f"{name}_bucket" for name in known}
    asked = {name for text in expressions() for name in re.findall(r"headrace_\w+", text)}
    assert len(asked) >= 8
    assert asked <= known
