from django.db import migrations


class Migration(migrations.Migration):
    """The table stays where it is: the app "manager" takes the model over in its first migration."""

    dependencies = [
        ('pipelines', '0004_input_leases'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel(name='InputLease')]),
    ]
