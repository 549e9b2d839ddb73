from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0006_export_unstored'),
    ]

    operations = [
        migrations.AddField(
            model_name='countminute',
            name='waiting',
            field=models.BigIntegerField(help_text='Messages that waited when the minute was written; null if it was written later.', null=True),
        ),
    ]
