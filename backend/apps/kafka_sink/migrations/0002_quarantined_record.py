from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('kafka_sink', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='QuarantinedRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sink', models.CharField(help_text='The worker that could not write it.', max_length=50)),
                ('position', models.CharField(help_text='Topic, partition and offset in Kafka, or stream and entry in Redis.', max_length=300)),
                ('reason', models.CharField(help_text='The kind of error.', max_length=100)),
                ('error', models.TextField()),
                ('key', models.BinaryField()),
                ('value', models.BinaryField()),
                ('headers', models.JSONField(default=list, help_text='Name and value of each header; values in base64.')),
                ('at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'indexes': [models.Index(fields=['sink', 'reason'], name='quarantined_by_reason')],
                'constraints': [models.UniqueConstraint(fields=('sink', 'position'), name='quarantined_once')],
            },
        ),
    ]
