from django.db import migrations


class Migration(migrations.Migration):
    """Once added a stage to every job; 0004 replaces such lists."""

    dependencies = [("jobs", "0002_filtering")]

    operations: list[migrations.RunPython] = []
