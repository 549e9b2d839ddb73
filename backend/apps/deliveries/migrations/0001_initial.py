import uuid_utils.compat
from django.db import migrations, models


ATTEMPTS = """
CREATE TABLE deliveries_attempt (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    pipeline_id uuid NOT NULL,
    output varchar(63) NOT NULL,
    message_id varchar(64) NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL,
    number smallint NOT NULL,
    milliseconds double precision NOT NULL,
    status varchar(200) NOT NULL,
    reason varchar(100) NOT NULL,
    error text NOT NULL,
    response text NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX deliveries_attempt_newest ON deliveries_attempt (workspace_id, id DESC);
CREATE INDEX deliveries_attempt_message ON deliveries_attempt (message_id);
CREATE TABLE deliveries_attempt_default PARTITION OF deliveries_attempt DEFAULT;
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.RunSQL(ATTEMPTS, "DROP TABLE deliveries_attempt"),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('workspace_id', models.UUIDField()),
                ('pipeline_id', models.UUIDField()),
                ('output', models.CharField(max_length=63)),
                ('message_id', models.CharField(max_length=64)),
                ('version', models.PositiveIntegerField()),
                ('at', models.DateTimeField()),
                ('number', models.PositiveSmallIntegerField()),
                ('milliseconds', models.FloatField()),
                ('status', models.CharField(blank=True, max_length=200)),
                ('reason', models.CharField(blank=True, help_text='Empty after a success.', max_length=100)),
                ('error', models.TextField(blank=True)),
                ('response', models.TextField(blank=True)),
            ],
            options={
                'db_table': 'deliveries_attempt',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
                ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                ('workspace_id', models.UUIDField(null=True)),
                ('pipeline_id', models.UUIDField(null=True)),
                ('output', models.CharField(blank=True, help_text='Empty when a stage before the outputs failed.', max_length=63)),
                ('stage', models.CharField(max_length=50)),
                ('message_id', models.CharField(blank=True, max_length=64)),
                ('version', models.PositiveIntegerField(default=0, help_text='Pipeline version the message was accepted under.')),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('redelivering', 'Redelivering'), ('delivered', 'Delivered'), ('discarded', 'Discarded'), ('expired', 'Expired: its body was removed to keep the size or the time bound')], default='waiting', max_length=12)),
                ('reason', models.CharField(max_length=100)),
                ('error', models.TextField()),
                ('attempts', models.PositiveIntegerField(default=0, help_text='Tries made, over all redeliveries.')),
                ('redeliveries', models.PositiveIntegerField(default=0)),
                ('due_at', models.DateTimeField(help_text='When it is sent again by itself; null: only by hand.', null=True)),
                ('use_current_version', models.BooleanField(default=False, help_text='Sent again under the version in force then.')),
                ('claimed_at', models.DateTimeField(null=True)),
                ('key', models.BinaryField()),
                ('body', models.BinaryField()),
                ('body_bytes', models.PositiveIntegerField()),
                ('content_type', models.CharField(blank=True, max_length=200)),
                ('received_at', models.CharField(blank=True, max_length=40)),
                ('headers', models.JSONField(default=dict, help_text='The routing slip and further headers.')),
                ('first_at', models.DateTimeField(help_text='When it first became a dead letter.')),
                ('last_at', models.DateTimeField(help_text='When it last failed.')),
                ('closed_at', models.DateTimeField(null=True)),
                ('closed_by', models.CharField(blank=True, max_length=150)),
                ('closed_why', models.CharField(blank=True, max_length=500)),
            ],
            options={
                'indexes': [models.Index(fields=['workspace_id', '-id'], name='dead_letter_by_workspace'), models.Index(condition=models.Q(('state', 'waiting')), fields=['pipeline_id', 'output', 'first_at'], name='dead_letter_waiting'), models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='dead_letter_due'), models.Index(condition=models.Q(('state', 'redelivering')), fields=['claimed_at'], name='dead_letter_claimed')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('message_id', ''), _negated=True), fields=('pipeline_id', 'output', 'message_id'), name='one_dead_letter_per_message_and_output')],
            },
        ),
    ]
