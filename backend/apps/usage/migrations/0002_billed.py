from django.db import migrations


BILLED = """
CREATE TABLE usage_output (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    pipeline_id uuid NOT NULL,
    output varchar(63) NOT NULL,
    UNIQUE (pipeline_id, output)
);
CREATE TABLE usage_billed (
    message_id uuid NOT NULL,
    output_id integer NOT NULL,
    bytes integer NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (message_id, output_id)
);
CREATE INDEX usage_billed_at ON usage_billed USING brin (at) WITH (autosummarize = on);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('usage', '0001_initial'),
    ]

    operations = [
        migrations.RunSQL(BILLED, "DROP TABLE usage_billed; DROP TABLE usage_output"),
    ]
