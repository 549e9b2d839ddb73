"""What the files of an output that stores files contain, when one is complete, and what it is called."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import takewhile
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from backend.domain.markers import checked_new_marker, is_marker
from backend.domain.model import ADVANCED, StrictModel
from backend.domain.paths import FieldPath

Format = Literal["jsonl", "csv", "parquet", "avro"]
Compression = Literal["none", "gzip", "zstd"]


class ColumnType(StrEnum):
    """How a column's values are stored where the format has types."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    JSON = "json"


_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_UNSAFE = re.compile(r"[^\w.=-]+", re.ASCII)
_SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_TYPED: tuple[Format, ...] = ("parquet", "avro")

PLACEHOLDERS = (
    *("pipeline", "pipeline_id", "output", "version", "number", "id"),
    *("date", "time", "year", "month", "day", "hour"),
)
_UNIQUE = {"number", "id"}
_OF_OUTPUT = {"pipeline", "pipeline_id", "output"}
_VALUES = {
    "number": r"\d{8,}",
    "id": r"[0-9a-f-]{36}",
    "version": r"\d+",
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d{6}",
    "year": r"\d{4}",
    "month": r"\d\d",
    "day": r"\d\d",
    "hour": r"\d\d",
}


def _check_name(name: str) -> str:
    placeholders = set(_PLACEHOLDER.findall(name))
    if unknown := sorted(placeholders - set(PLACEHOLDERS)):
        raise ValueError(f"There is no placeholder {{{unknown[0]}}}. There are {_listed(PLACEHOLDERS)}.")
    if not placeholders & _UNIQUE:
        raise ValueError("The name needs {number} or {id}: without them a file would replace the one before it.")
    plain = _PLACEHOLDER.sub("x", name)
    if re.search(r"[^\w./=-]", plain, re.ASCII):
        raise ValueError("A name consists of letters, digits, placeholders and . _ - = with / between folders.")
    if any(part in ("", ".", "..") for part in plain.split("/")):
        raise ValueError("A name is a path relative to the store, without empty folders and without '..'.")
    return name


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


def _check_schedule(schedule: str) -> str:
    try:
        first = next(CronSim(schedule, datetime.now(UTC)), None)
    except CronSimError as error:
        raise ValueError(f"This is not a cron expression with five fields, such as '0 3 * * *': {error}.") from None
    if first is None:
        raise ValueError("No day matches this cron expression.")
    return schedule


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("This is no time zone of the IANA database, such as America/Sao_Paulo.") from None
    return name


class ExportColumn(StrictModel):
    """One column, taken from a field of each message."""

    model_config = ConfigDict(title="Column")

    path: FieldPath = Field(description="Field of the message.")
    name: str = Field("", max_length=200, description="Name of the column; without it, the field's.")
    type: Literal["text", "integer", "number", "boolean", "timestamp", "json"] | None = Field(
        None,
        description="Type in Parquet and Avro. Without it, the type is chosen for each file by its values. A file "
        "with a value that does not fit is not written.",
    )

    @property
    def title(self) -> str:
        return self.name or self.path


class ExportPolicy(StrictModel):
    """How messages become files. A file is complete when one of its limits is reached."""

    model_config = ConfigDict(title="Files")

    format: Format = Field("jsonl", description="Format of the files: JSON lines, CSV, Parquet or Avro.")
    compression: Compression = Field(
        "none", description="Compression: of the whole file for JSON lines and CSV, inside the file for the others."
    )
    name: Annotated[str, AfterValidator(_check_name)] = Field(
        "{pipeline}/{output}/{date}/{number}",
        min_length=1,
        max_length=300,
        description="Name of the files, relative to the store, to which the extension is added. Placeholders: "
        + _listed(PLACEHOLDERS)
        + ".",
        examples=["orders/{year}/{month}/orders-{number}"],
    )
    rows: int | None = Field(100_000, ge=1, le=100_000_000, description="Most messages in a file.")
    bytes: int | None = Field(
        None, ge=1, le=1024**4, description="Most bytes of message bodies in a file, before formatting and compression."
    )
    minutes: float | None = Field(
        60, ge=0.1, le=31 * 24 * 60, description="Longest time that a message waits for its file, in minutes."
    )
    schedule: Annotated[str, AfterValidator(_check_schedule)] | None = Field(
        None,
        max_length=100,
        description="Times at which what is there becomes a file, as a cron expression.",
        examples=["0 3 * * *"],
    )
    timezone: Annotated[str, AfterValidator(_check_zone)] = Field(
        "UTC",
        title="Time zone",
        max_length=60,
        description="Time zone of the schedule and of dates in names.",
        examples=["America/Sao_Paulo"],
        json_schema_extra=ADVANCED,
    )
    empty_files: bool = Field(
        False,
        title="Files without messages",
        description="At a time of the schedule at which there are no messages, stores a file without any, so that who "
        "fetches files can tell this from a delay.",
        json_schema_extra=ADVANCED,
    )
    columns: list[ExportColumn] = Field(
        default_factory=list,
        max_length=500,
        description="Columns of the file; without any, all fields of the messages.",
    )
    message_fields: bool = Field(
        False,
        description="Adds the message's id and the time at which it was received, as _message_id and _received_at.",
        json_schema_extra=ADVANCED,
    )
    header: bool = Field(
        True, description="Whether a CSV file begins with the columns' names.", json_schema_extra=ADVANCED
    )
    delimiter: str = Field(
        ",",
        pattern=r'^[^"\r\n]$',
        description="Character that separates the values of a CSV file.",
        json_schema_extra=ADVANCED,
    )
    spreadsheet_safe: bool = Field(
        False,
        description="Puts an apostrophe before texts of a CSV file that a spreadsheet would run as a formula: those "
        "that begin with =, +, -, @, a tab or a carriage return. Programs that read the file see it too.",
        json_schema_extra=ADVANCED,
    )
    manifest_file: bool = Field(
        False,
        description="Also stores the manifest of each file beside it, as NAME.manifest.json, once the file is there.",
        json_schema_extra=ADVANCED,
    )
    marker: Annotated[str, AfterValidator(checked_new_marker)] = Field(
        "",
        title="Marker file",
        max_length=100,
        description="Name of an empty file that is stored beside each file once that and its manifest are there, so "
        "that who fetches files can wait for it. {name} is the file's name, {stem} the name without its extension. "
        "Without it, there are no markers.",
        examples=["{name}.done", "_SUCCESS"],
        json_schema_extra=ADVANCED,
    )

    @field_validator("columns")
    @classmethod
    def _check_columns_differ(cls, columns: list[ExportColumn]) -> list[ExportColumn]:
        titles = [column.title for column in columns]
        if repeated := sorted({title for title in titles if titles.count(title) > 1}):
            raise ValueError(f"Each column needs a name of its own; repeated: {', '.join(repeated)}.")
        return columns

    @model_validator(mode="after")
    def _check_combination(self) -> "ExportPolicy":
        if self.rows is None and self.bytes is None and self.minutes is None and self.schedule is None:
            raise ValueError(
                "A file would never be complete: set a limit of messages, bytes or minutes, or a schedule."
            )
        if self.empty_files and self.schedule is None:
            raise ValueError("Files without messages need a schedule, which says when there is one.")
        if self.empty_files and self.is_typed and not (self.columns and all(column.type for column in self.columns)):
            raise ValueError(
                "Files without messages need columns with types in Parquet and Avro: there are no values to choose "
                "types by."
            )
        if self.format == "avro" and self.compression == "gzip":
            raise ValueError("Avro files cannot be compressed with gzip: choose zstd or none.")
        if self.format not in _TYPED and any(column.type for column in self.columns):
            raise ValueError(
                "Only Parquet and Avro have column types: remove the types, or choose one of these formats."
            )
        if self.format == "avro" and (unfit := [c.title for c in self.columns if not is_avro_name(c.title)]):
            raise ValueError(f"Avro's names consist of letters, digits and _: give the column {unfit[0]} another name.")
        return self

    @property
    def zone(self) -> tzinfo:
        return ZoneInfo(self.timezone)

    @property
    def is_typed(self) -> bool:
        """Whether the format has column types."""
        return self.format in _TYPED

    @property
    def extension(self) -> str:
        if self.is_typed:
            return f".{self.format}"
        return f".{self.format}{_SUFFIXES[self.compression]}"

    @property
    def shown_name(self) -> str:
        """The name of its files, with placeholders."""
        return self.name if self.name.endswith(self.extension) else self.name + self.extension

    def is_due(self, oldest: datetime, now: datetime) -> bool:
        """Whether what waits since ``oldest`` is to become a file, however little it is."""
        due = self.next_due(oldest)
        return due is not None and due <= now

    def next_scheduled(self, after: datetime) -> datetime | None:
        """The first time of the schedule after that one; None without a schedule."""
        return None if self.schedule is None else next(CronSim(self.schedule, after.astimezone(self.zone)))

    def next_due(self, oldest: datetime) -> datetime | None:
        """When what waits since ``oldest`` becomes a file at the latest; None when only its amount decides."""
        ends = []
        if self.minutes is not None:
            ends.append(oldest + timedelta(minutes=self.minutes))
        if (scheduled := self.next_scheduled(oldest)) is not None:
            ends.append(scheduled)
        return min(ends, default=None)

    def file_name(
        self, *, pipeline: str, pipeline_id: str, output: str, version: int, number: int, id: str, at: datetime
    ) -> str:
        """The path of one file."""
        local = at.astimezone(self.zone)
        values = {
            "pipeline": pipeline,
            "pipeline_id": pipeline_id,
            "output": output,
            "version": str(version),
            "number": f"{number:08d}",
            "id": id,
            "date": f"{local:%Y-%m-%d}",
            "time": f"{local:%H%M%S}",
            "year": f"{local:%Y}",
            "month": f"{local:%m}",
            "day": f"{local:%d}",
            "hour": f"{local:%H}",
        }
        return _PLACEHOLDER.sub(lambda placeholder: path_safe(values[placeholder[1]]), self.shown_name)

    def folder_of(self, path: str) -> str:
        """Of a file of the output, the folders that all its files are in, with a slash behind each."""
        parts = self.name.split("/")[:-1]
        fixed = takewhile(lambda part: set(_PLACEHOLDER.findall(part)) <= _OF_OUTPUT, parts)
        return "".join(f"{part}/" for part, _ in zip(path.split("/"), fixed, strict=False))

    def is_named_so(self, path: str) -> bool:
        """Whether a file of the output may be called so, or what is stored beside one."""
        own = re.escape(self.shown_name).replace(r"\{", "{").replace(r"\}", "}")
        pattern = _PLACEHOLDER.sub(lambda placeholder: _VALUES.get(placeholder[1], r"[\w.=-]+"), own)
        if re.fullmatch(pattern, path.removesuffix(".manifest.json"), re.ASCII):
            return True
        beside = path.rpartition("/")[0].count("/") == self.name.rpartition("/")[0].count("/")
        return bool(self.marker) and beside and is_marker(self.marker, path)


def path_safe(text: str) -> str:
    """The text as part of a path: other characters than letters, digits and . _ - = become a hyphen."""
    return _UNSAFE.sub("-", text).strip(".") or "-"


def is_avro_name(name: str) -> bool:
    """Whether Avro allows the name of a field."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
