from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0005_notifications_kept'),
    ]

    operations = [
        migrations.AlterField(
            model_name='alertrule',
            name='kind',
            field=models.CharField(choices=[('failure_rate', 'More than this share of deliveries failed, in per cent'), ('dead_letter_age', 'A dead letter has waited for longer than this, in minutes'), ('dead_letters_expire', 'Dead letters lose their bodies within this time, in hours'), ('export_unstored', 'A file could not be stored for longer than this, in minutes'), ('stage_lag', 'More than this many messages wait before a stage'), ('breaker_open', 'A circuit breaker is open'), ('job_down', 'A Spark application or a part of it does not run, or messages were lost'), ('registration', 'What a pipeline made in another system is in danger, or endangers that system')], max_length=20),
        ),
    ]
