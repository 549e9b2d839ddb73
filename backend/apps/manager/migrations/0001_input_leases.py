import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """Takes over the model InputLease, whose table the app "pipelines" made."""

    initial = True

    dependencies = [
        ('pipelines', '0005_leases_to_manager'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name='InputLease',
                    fields=[
                        ('pipeline', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='lease', serialize=False, to='pipelines.pipeline')),
                        ('reading', models.CharField(choices=[('batching', 'batching'), ('streaming', 'streaming')], max_length=20)),
                        ('input', models.JSONField(help_text="The input's configuration, as it was put in force.")),
                        ('breakpoint', models.TextField(blank=True, help_text='JSON: where the next batch begins. Empty before the first.')),
                        ('visible_at', models.DateTimeField(default=django.utils.timezone.now)),
                        ('holder', models.CharField(blank=True, max_length=200)),
                        ('token', models.UUIDField(blank=True, null=True)),
                        ('locked_until', models.DateTimeField(blank=True, null=True)),
                        ('ends_at', models.DateTimeField(blank=True, help_text='When a batch has taken too long.', null=True)),
                        ('failure', models.TextField(blank=True, help_text='Why the last batch could not be read.')),
                    ],
                    options={
                        'db_table': 'pipelines_inputlease',
                        'indexes': [models.Index(fields=['reading', 'visible_at'], name='lease_offered')],
                    },
                ),
            ],
        ),
    ]
