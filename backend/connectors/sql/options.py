"""What a pipeline sets for a table that it writes to."""

from typing import Literal

from pydantic import Field, model_validator

from backend.connectors.parts.rows.options import TableName
from backend.domain.capabilities import Options
from backend.domain.model import ADVANCED
from backend.domain.paths import FieldPath


class SqlOutputOptions(Options):
    """Rows that are written to one table."""

    table: TableName
    write: Literal["insert", "upsert", "delete"] = Field(
        "upsert",
        description="Inserts a row for each message, updates the row with the same key or inserts it, or deletes the "
        "row with the same key. A message may be delivered more than once, which does no harm with upsert and delete.",
    )
    key: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="Columns that identify a row, for upsert and delete; the primary key by default.",
        examples=[["id"]],
    )
    columns: dict[str, FieldPath] = Field(
        default_factory=dict,
        description="Columns, each with the field of the message that it takes. Without any, each field of the message "
        "goes to the column of the same name.",
        examples=[{"id": "order.id", "total": "order.total"}],
    )
    delete_when: FieldPath | None = Field(
        None,
        description="Field that is true in messages whose row is to be deleted, with upsert.",
        examples=["deleted"],
    )
    unknown_fields: Literal["ignore", "refuse"] = Field(
        "ignore",
        description="What happens to a field without a column: it is left out, or the message fails. Concerns outputs "
        "without a list of columns.",
        json_schema_extra=ADVANCED,
    )
    connections: int = Field(
        4,
        ge=1,
        le=50,
        description="Connections to the database at the same time, per task.",
        json_schema_extra=ADVANCED,
    )

    @model_validator(mode="after")
    def _check_deletion(self) -> "SqlOutputOptions":
        if self.delete_when is not None and self.write != "upsert":
            raise ValueError("A field that marks deletions needs upsert.")
        return self
