from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("connectors", "0002_vault")]

    operations = [
        migrations.AddField(
            model_name="connector",
            name="schema_version",
            field=models.PositiveSmallIntegerField(
                default=1, help_text="Of the form in which the connection is stored."
            ),
            preserve_default=False,
        )
    ]
