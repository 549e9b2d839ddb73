from django.db import migrations


def add_adapting_slow(apps, schema_editor):
    before = ["adapting", "adapting_transformer", "filtering", "syndicating"]
    jobs = apps.get_model("jobs", "SparkJob").objects.filter(stages=before)
    jobs.update(stages=["adapting", "adapting_transformer", "adapting_slow", "filtering", "syndicating"])


class Migration(migrations.Migration):
    dependencies = [("jobs", "0002_filtering")]

    operations = [migrations.RunPython(add_adapting_slow, migrations.RunPython.noop)]
