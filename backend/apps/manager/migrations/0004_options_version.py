from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("manager", "0003_input_progress")]

    operations = [
        migrations.AddField(
            model_name="inputlease",
            name="options_version",
            field=models.PositiveSmallIntegerField(default=1, help_text="Schema version of its options."),
        ),
    ]
