from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0005_supervision")]

    operations = [
        migrations.RenameField("sparkjob", "stop_asked_at", "stop_requested_at"),
        migrations.AlterField(
            "sparkjob",
            "silent_since",
            models.DateTimeField(
                blank=True,
                help_text="Since when there has been no heartbeat by any way; the application is hung.",
                null=True,
            ),
        ),
        migrations.AlterField(
            "sparkjob",
            "process_started",
            models.FloatField(
                blank=True, help_text="Distinguishes the process from a later one with the same PID.", null=True
            ),
        ),
    ]
