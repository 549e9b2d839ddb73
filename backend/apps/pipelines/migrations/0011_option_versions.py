from typing import Any

from django.db import migrations, models

from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig
from backend.domain.uses import option_versions


def note_versions(apps: Any, schema_editor: Any) -> None:
    """All that is stored has the first version. Of what cannot be read, nothing is known."""
    types = dict(apps.get_model("connectors", "Connector").objects.values_list("pk", "type"))
    for version in apps.get_model("pipelines", "PipelineVersion").objects.iterator():
        try:
            uses = PipelineConfig.load_stored(version.config, version.schema_version).uses()
        except UnreadableConfigError:
            continue
        version.option_versions = {
            path: (type, capability, 1) for path, (type, capability, _) in option_versions(uses, types).items()
        }
        version.save(update_fields=["option_versions"])


class Migration(migrations.Migration):
    dependencies = [("pipelines", "0010_version_stages")]

    operations = [
        migrations.AddField(
            model_name="pipelineversion",
            name="option_versions",
            field=models.JSONField(
                default=dict,
                help_text="By the path of each use: connector type, capability, and schema version of the stored options.",
            ),
        ),
        migrations.AddField(
            model_name="registration",
            name="options_version",
            field=models.PositiveSmallIntegerField(default=1, help_text="Schema version of these options."),
        ),
        migrations.RunPython(note_versions, migrations.RunPython.noop),
    ]
