from collections.abc import Iterator
from typing import Any

import django.contrib.postgres.fields
from django.db import migrations, models


def note_uses(apps: Any, schema_editor: Any) -> None:
    """Configurations were stored in version 1 of their schema until now."""
    for version in apps.get_model("pipelines", "PipelineVersion").objects.iterator():
        steps = [step for step in version.config.get("transforms", ()) if step["type"] == "http_call"]
        version.connectors = sorted(set(_connectors(version.config, steps)))
        version.breakers = [output["name"] for output in version.config.get("outputs", ())]
        version.breakers += [f"API-{step['name']}" for step in steps]
        version.save(update_fields=["connectors", "breakers"])


def _connectors(config: dict[str, Any], steps: list[dict[str, Any]]) -> Iterator[str]:
    yield from (item["connector"] for item in [*config.get("outputs", ()), *steps])
    verification = (config.get("input") or {}).get("verification")
    if verification:
        yield verification


class Migration(migrations.Migration):
    dependencies = [("pipelines", "0005_leases_to_manager")]

    operations = [
        migrations.AddField(
            model_name="pipelineversion",
            name="schema_version",
            field=models.PositiveSmallIntegerField(
                default=1, help_text="Of the form in which the configuration is stored."
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="pipelineversion",
            name="connectors",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(), default=list, help_text="Every connector that it uses.", size=None
            ),
        ),
        migrations.AddField(
            model_name="pipelineversion",
            name="breakers",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=80),
                default=list,
                help_text="Names of its circuit breakers and rate limits.",
                size=None,
            ),
        ),
        migrations.RunPython(note_uses, migrations.RunPython.noop),
    ]
