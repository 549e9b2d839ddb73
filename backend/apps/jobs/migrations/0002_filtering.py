from django.db import migrations


def add_filtering(apps, schema_editor):
    before = ["adapting", "adapting_transformer", "syndicating"]
    jobs = apps.get_model("jobs", "SparkJob").objects.filter(stages=before)
    jobs.update(stages=["adapting", "adapting_transformer", "filtering", "syndicating"])


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [migrations.RunPython(add_filtering, migrations.RunPython.noop)]
