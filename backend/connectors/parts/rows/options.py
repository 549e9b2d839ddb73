"""What a pipeline sets for the rows that it reads, and for those that it writes."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from backend.domain.capabilities import Options
from backend.domain.model import ADVANCED, SAME_SOURCE, StrictModel
from backend.domain.paths import FieldPath

TableName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Table, with its schema in front where it needs one.",
        examples=["public.orders"],
    ),
]


class WholeTable(StrictModel):
    """Reads all rows, once or again and again."""

    type: Literal["bulk"] = "bulk"
    repeat_minutes: int | None = Field(
        None,
        ge=1,
        description="Minutes after which all rows are read again. Without it they are read once.",
        json_schema_extra=SAME_SOURCE,
    )


class WholeTableInParts(WholeTable):
    """Reads all rows, once or again and again."""

    model_config = ConfigDict(title="Whole table")

    readers: int = Field(
        4,
        ge=1,
        le=16,
        description="Readers of a table of 500,000 rows or more, from 1 to 16. Each reads a part of it at the same "
        "time as the others. With 1, and where several tables or a query are read, there is one reader.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )


class Incrementing(StrictModel):
    """Reads new rows by a column whose values only increase."""

    type: Literal["incrementing"] = "incrementing"
    column: str = Field(min_length=1, description="Column whose values increase with each row.", examples=["id"])


class ByTimestamp(StrictModel):
    """Reads new and changed rows by the time of their last change."""

    type: Literal["timestamp"] = "timestamp"
    timestamp_column: str = Field(
        min_length=1, description="Column with the time of a row's last change.", examples=["updated_at"]
    )
    delay_seconds: int = Field(
        5,
        ge=0,
        le=86_400,
        description="Seconds for which a row is left before it is read, so that rows whose transactions commit late "
        "are not missed. With 0 the database's clock is not consulted.",
        json_schema_extra=SAME_SOURCE,
    )


class ByTimestampAndNumber(ByTimestamp):
    """Reads new and changed rows by the time of their last change and, within the same time, by a number."""

    type: Literal["timestamp_incrementing"] = "timestamp_incrementing"  # type: ignore[assignment]
    incrementing_column: str = Field(
        min_length=1, description="Column whose values increase with each row.", examples=["id"]
    )


class ReadTable(StrictModel):
    """A table or a view."""

    type: Literal["table"] = "table"
    table: TableName


class ReadTables(StrictModel):
    """Several tables or views, one after the other, each from where it was left."""

    type: Literal["tables"] = "tables"
    tables: list[TableName] = Field(
        min_length=1,
        max_length=200,
        description="Tables, each with its schema in front where it needs one. All have the columns that the mode "
        "names, and are read in the same way. One that is added is read from its beginning; the others go on.",
        examples=[["public.orders", "public.customers"]],
        json_schema_extra=SAME_SOURCE,
    )

    @field_validator("tables")
    @classmethod
    def _check_tables_differ(cls, tables: list[str]) -> list[str]:
        if repeated := sorted({table for table in tables if tables.count(table) > 1}):
            raise ValueError(f"A table can be read once; repeated: {', '.join(repeated)}.")
        return tables


class ReadQuery(StrictModel):
    """What a query returns."""

    type: Literal["query"] = "query"
    query: str = Field(
        min_length=1,
        max_length=20_000,
        description="A SELECT statement. It becomes a part of the statement that reads, which adds the conditions.",
        examples=["SELECT o.id, o.total, c.name FROM orders o JOIN customers c ON c.id = o.customer_id"],
    )

    @field_validator("query")
    @classmethod
    def _check_query(cls, query: str) -> str:
        return query.strip().rstrip(";").strip()


class SqlInputOptions(Options):
    """Rows that become messages, JSON objects of their columns."""

    source: Annotated[ReadTable | ReadTables | ReadQuery, Field(discriminator="type")] = Field(
        description="What is read."
    )
    mode: Annotated[WholeTable | Incrementing | ByTimestamp | ByTimestampAndNumber, Field(discriminator="type")] = (
        Field(description="Which rows are read.")
    )
    key: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="Columns that identify a row, so that a row that is read again makes no second message; the "
        "primary key by default.",
        examples=[["id"]],
    )
    batch_rows: int = Field(
        1000, ge=1, le=10_000, description="Most rows in a batch.", json_schema_extra=ADVANCED | SAME_SOURCE
    )
    batch_bytes: int = Field(
        4 * 1024 * 1024,
        ge=1,
        le=64 * 1024 * 1024,
        description="Most bytes in a batch.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )


class PartedSqlInputOptions(SqlInputOptions):
    """Rows that become messages, JSON objects of their columns."""

    model_config = ConfigDict(title="SQL input options")

    mode: Annotated[  # type: ignore[assignment]
        WholeTableInParts | Incrementing | ByTimestamp | ByTimestampAndNumber, Field(discriminator="type")
    ] = Field(description="Which rows are read.")


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
