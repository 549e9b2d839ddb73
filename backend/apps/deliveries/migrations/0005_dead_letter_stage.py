from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('deliveries', '0004_dead_letter_open'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='deadletter',
            name='one_dead_letter_per_message_and_output',
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.UniqueConstraint(condition=models.Q(('message_id', ''), _negated=True), fields=('pipeline_id', 'output', 'message_id', 'stage'), name='one_dead_letter_per_message_output_and_stage'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('state__in', ['delivered', 'discarded'])), fields=['closed_at'], name='dead_letter_closed'),
        ),
        migrations.AlterField(
            model_name='outputevent',
            name='output',
            field=models.CharField(help_text='An output, or an external call.', max_length=80),
        ),
    ]
