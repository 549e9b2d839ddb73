from typing import Any

import django.contrib.postgres.fields
from django.db import migrations, models

from backend.domain.demand import stages_of
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig
from backend.domain.stages import STAGES


def note_stages(apps: Any, schema_editor: Any) -> None:
    """A version that cannot be read may need every stage."""
    types = dict(apps.get_model("connectors", "Connector").objects.values_list("pk", "type"))
    for version in apps.get_model("pipelines", "PipelineVersion").objects.iterator():
        try:
            stages = stages_of(PipelineConfig.load_stored(version.config, version.schema_version), types)
        except UnreadableConfigError:
            stages = list(STAGES)
        version.stages = [stage.name for stage in stages]
        version.save(update_fields=["stages"])


class Migration(migrations.Migration):
    dependencies = [("pipelines", "0009_version_note")]

    operations = [
        migrations.AddField(
            model_name="pipelineversion",
            name="stages",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=50),
                default=list,
                help_text="Names of the stages that its messages need.",
                size=None,
            ),
        ),
        migrations.RunPython(note_stages, migrations.RunPython.noop),
    ]
