import socket

import django.db.models.deletion
from django.db import migrations, models


def record_host(apps, schema_editor):
    """Applications that run now were started on one host, the only one there could be."""
    apps.get_model("jobs", "SparkJob").objects.exclude(pid=None).update(host=socket.gethostname())


class Migration(migrations.Migration):
    dependencies = [("jobs", "0004_all_stages")]

    operations = [
        migrations.AddField(
            model_name="sparkjob",
            name="holder",
            field=models.CharField(blank=True, help_text="The host whose worker supervises it.", max_length=255),
        ),
        migrations.AddField(
            model_name="sparkjob",
            name="lease_until",
            field=models.DateTimeField(
                blank=True, help_text="Until then no other host's worker may supervise it.", null=True
            ),
        ),
        migrations.AddField(
            model_name="sparkjob",
            name="token",
            field=models.BigIntegerField(
                default=0,
                help_text="Fencing token: counts the starts. An application drains once a later one was started.",
            ),
        ),
        migrations.AddField(
            model_name="sparkjob",
            name="reported_at",
            field=models.DateTimeField(
                blank=True,
                help_text="When the application with this token last reported itself to the manager.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="sparkjob",
            name="silent_since",
            field=models.DateTimeField(
                blank=True,
                help_text="Since when no witness has seen a sign of life; the application is hung.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="sparkjob",
            name="problem",
            field=models.TextField(blank=True, help_text="What the running application reports about its stages."),
        ),
        migrations.AddField(
            model_name="sparkjob",
            name="host",
            field=models.CharField(
                blank=True, help_text="Where it was started; empty once it has ended.", max_length=255
            ),
        ),
        migrations.RunPython(record_host, migrations.RunPython.noop),
        migrations.CreateModel(
            name="LostMessages",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stage", models.CharField(max_length=50)),
                ("partition", models.PositiveIntegerField()),
                ("first_offset", models.BigIntegerField()),
                ("count", models.BigIntegerField()),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="losses", to="jobs.sparkjob"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "lost messages",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("job", "stage", "partition", "first_offset"), name="one_row_per_loss"
                    )
                ],
            },
        ),
    ]
