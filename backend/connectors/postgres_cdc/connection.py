from typing import Literal

from pydantic import Field

from backend.connectors.parts.database import DatabaseConnection
from backend.domain.capabilities import Options
from backend.domain.model import ADVANCED, SAME_SOURCE

_IDENTIFIER = r"^[^\x00\"]{1,63}$"


class PostgresConnection(DatabaseConnection):
    """A PostgreSQL database, version 14 or newer, with wal_level = logical."""

    port: int | None = Field(None, ge=1, le=65_535, description="Port of the server; 5432 by default.")
    user: str = Field(min_length=1, description="User name; the user needs the attribute REPLICATION.")


class CdcOptions(Options):
    """Changes of rows, in the order of their transactions."""

    tables: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Tables whose changes are read, with their schemas in front. Without any, all tables of the "
        "database, which only a superuser may publish.",
        examples=[["public.orders"]],
    )
    begin: Literal["snapshot", "now"] = Field(
        "snapshot",
        description="Where reading begins: with the rows that the tables hold, followed by every change since, or with "
        "the changes from now on.",
    )
    retained_megabytes: int = Field(
        5120,
        ge=1,
        description="How much of its log the database may keep for this input, while it is paused for example, before "
        "a warning is shown and an alert is raised, in megabytes.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )
    slot: str | None = Field(
        None,
        pattern=r"^[a-z0-9_]{1,63}$",
        description="Replication slot to use, with the plugin pgoutput, which then is neither made nor removed by "
        "Headrace.",
        json_schema_extra=ADVANCED,
    )
    publication: str | None = Field(
        None,
        pattern=_IDENTIFIER,
        description="Publication to use, which then is neither made, changed nor removed by Headrace; it decides on "
        "the tables.",
        json_schema_extra=ADVANCED,
    )
