from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pipelines', '0011_option_versions'),
    ]

    operations = [
        migrations.AddField(
            model_name='pipeline',
            name='published_at',
            field=models.DateTimeField(help_text='When that version was published.', null=True),
        ),
    ]
