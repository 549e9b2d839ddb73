import django.contrib.postgres.fields
from django.db import migrations, models


def run_all_stages(apps, schema_editor):
    """The default job had a list of all stages that there were; now an empty list means all that there are."""
    apps.get_model("jobs", "SparkJob").objects.filter(name="data-plane").update(stages=[])


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_adapting_slow")]

    operations = [
        migrations.AlterField(
            model_name="sparkjob",
            name="stages",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=50),
                blank=True,
                default=list,
                help_text="Names of stages; all of them when empty.",
                size=None,
            ),
        ),
        migrations.RunPython(run_all_stages, migrations.RunPython.noop),
    ]
