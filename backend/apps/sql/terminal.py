"""The terminal client of Connect SQL: statements in, tables out, over the REST API."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import requests
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backend.domain import json
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.errors import StatementError
from backend.domain.connect_sql.keywords import keywords
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.printer import masked, masked_text

_SECONDS = 90.0
"""Without a line: a query that ends reads for a minute at most, and another gives a sign every few seconds."""
_ENDS = {"exit", "quit"}
_LINES = "application/x-ndjson"
_NOT_LAST = ("reading", "rows", "error")
"""Lines that do not say that a statement was executed."""
_PLAIN = ("type", "statement", "message", "warnings")


class UnreachableError(Exception):
    """The console does not answer, or not to this key; the message says which address and why."""


class Client:
    """Sends statements with an API key. Variables that are defined stay defined for later ones."""

    def __init__(self, url: str, key: str, *, from_beginning: bool = False) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/sql/stream/"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._variables: dict[str, str] = {}
        self._from_beginning = from_beginning

    def execute(self, text: str) -> Iterator[dict[str, Any]]:
        """What the statements answer, as it comes; see ``sql_stream`` of the API. Raises UnreachableError."""
        body: dict[str, Any] = {"text": text, "variables": self._variables, "from_beginning": self._from_beginning}
        try:
            with requests.post(
                self._url, json=body, headers=self._headers, timeout=_SECONDS, stream=True, allow_redirects=False
            ) as answer:
                if answer.headers.get("Content-Type") != _LINES:
                    raise UnreachableError(self._reason(answer))
                executed = 0
                for line in map(json.loads, answer.iter_lines()):
                    executed += line["type"] not in _NOT_LAST
                    yield line
                self._remember(text, executed)
        except requests.RequestException as error:
            raise UnreachableError(f"{self._url} cannot be reached: {type(error).__name__}.") from None

    def _reason(self, answer: requests.Response) -> str:
        try:
            return str(answer.json()["detail"])
        except (requests.JSONDecodeError, KeyError, TypeError):
            return f"What answers at {self._url} is not Headrace."

    def _remember(self, text: str, executed: int) -> None:
        if not executed:
            return
        for statement in parse(text)[:executed]:
            match statement:
                case s.Define(name=name, value=value):
                    self._variables[name] = value
                case s.Undefine(name=name):
                    self._variables.pop(name, None)


class MaskedHistory(FileHistory):
    """What was typed in earlier sessions, with secrets masked."""

    def store_string(self, string: str) -> None:
        try:
            text = "; ".join(map(masked, parse(string)))
        except StatementError:
            text = masked_text(string)
        if text:
            super().store_string(f"{text};")


def show(console: Console, lines: Iterable[dict[str, Any]]) -> bool:
    """Prints what statements answer, as it comes; whether all were executed."""
    columns: list[str] = []
    for line in lines:
        match line["type"]:
            case "reading":
                columns = [column["name"] for column in line["columns"]]
                _say(console, line)
            case "rows":
                if line["rows"]:
                    console.print(_table(columns, [list(map(_cell, row)) for row in line["rows"]]))
            case "error":
                _show_error(console, line)
                return False
            case _:
                for part in _shown(line):
                    console.print(part)
                _say(console, line)
    return True


def _say(console: Console, line: dict[str, Any]) -> None:
    for warning in line["warnings"]:
        console.print(Text(warning, "yellow"))
    if line["message"]:
        console.print(Text(line["message"], "green"))


def _show_error(console: Console, error: dict[str, Any]) -> None:
    console.print(Text(f"Line {error['line']}, column {error['column']}: {error['message']}", "red"))
    if error["properties"]:
        rows = [(key, " ".join(reasons)) for key, reasons in sorted(error["properties"].items())]
        console.print(_table(["property", "what is wrong"], rows))


def _cell(value: Any) -> str:
    return "NULL" if value is None else json.text(value)


def _shown(result: dict[str, Any]) -> Iterator[Table]:
    """The lists of a result as tables of their own, and its other fields as one."""
    fields = {name: value for name, value in result.items() if name not in _PLAIN}
    single = [(_title(name), str(value)) for name, value in fields.items() if not isinstance(value, list) and value]
    if single:
        yield _table(["", ""], single, header=False)
    for name, value in fields.items():
        if not isinstance(value, list) or (single and not value):
            continue
        if value and isinstance(value[0], dict):
            columns = list(value[0])
            yield _table(list(map(_title, columns)), [[str(row[column]) for column in columns] for row in value])
        else:
            yield _table([_title(name)], [[str(row)] for row in value])


def _table(columns: list[str], rows: Any, *, header: bool = True) -> Table:
    table = Table(show_header=header)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _title(name: str) -> str:
    return name.replace("_", " ")


def session(client: Client, console: Console, history: Path) -> None:
    """Reads statements until the end of input; a statement is sent once its line ends with a semicolon."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text.strip()
        if text.endswith(";") or text.lower() in _ENDS or not text:
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    history.parent.mkdir(parents=True, exist_ok=True)
    prompt: PromptSession[str] = PromptSession(
        history=MaskedHistory(str(history)),
        completer=WordCompleter(sorted(keywords()), ignore_case=True),
        multiline=True,
        key_bindings=keys,
    )
    while True:
        try:
            text = prompt.prompt("sql> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.lower() in _ENDS:
            return
        if text:
            try:
                show(console, client.execute(text))
            except UnreachableError as error:
                console.print(Text(str(error), "red"))
            except KeyboardInterrupt:
                console.print(Text("The query was ended.", "yellow"))
