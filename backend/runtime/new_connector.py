"""Writes a new connector and its cases: ``make new-connector NAME=files``."""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from backend.settings import ROOT

_LONGEST_NAME = 40
_CONNECTOR = Template('''\
from pydantic import Field, SecretStr

from backend.domain.capabilities import Connection, Deliver, DeliveryError, Options, Receipt
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.message import Message
from backend.domain.reasons import Reason


class ${Name}Connection(Connection):
    """A ${words} server."""

    host: str = Field(description="Host of the server.", examples=["${name}.example.com"])
    password: SecretStr = Field(description="Password.")

    def hosts(self) -> dict[str, list[str]]:
        return {"host": [self.host]}


class ${Name}Options(Options):
    """One delivery to ${words}."""

    destination: str = Field(description="Where messages are written on the server.", examples=["orders"])


class ${Name}Deliver(Deliver[${Name}Connection, ${Name}Options]):
    """Writes each message to ${words}."""

    options_model = ${Name}Options

    def target(self) -> str:
        return f"{self.options.destination} at {self.connection.host}"

    async def deliver(self, message: Message) -> Receipt:
        # Replace this by the delivery. A vendor's library is imported here, and named in Connector.requires.
        raise DeliveryError(Reason.CONFIGURATION, "This connector does not deliver yet.", retryable=False)


@connectors.register
class ${Name}(Connector):
    """Delivers messages to ${words}."""

    type = "${name}"
    title = "${title}"
    connection_model = ${Name}Connection
    capabilities = (${Name}Deliver,)
    example = {"host": "${name}.example.com", "password": "s3cret"}

    @staticmethod
    async def check(connection: ${Name}Connection) -> str:
        # Replace this by a connection that needs a working login.
        raise CheckFailedError("This connector has no connection test yet.", field="host")
''')

_CASES = Template('''\
"""The ${title} connector, against a real server."""

from backend.connectors.${name} import ${Name}Connection, ${Name}Deliver, ${Name}Options


def test_the_target_is_shown_without_secrets() -> None:
    connection = ${Name}Connection.model_validate({"host": "${name}.example.com", "password": "s3cret"})
    options = ${Name}Options.model_validate({"destination": "orders"})
    target = ${Name}Deliver(connection, options).target()
    assert "orders" in target
    assert "s3cret" not in target


# Start the server in a session fixture, and add a class that inherits DeliverSuite (suites beside this file).
''')


def write_connector(name: str, root: Path) -> list[Path]:
    """The files, which must not exist yet. Raises ValueError when the name is none, FileExistsError otherwise."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > _LONGEST_NAME:
        raise ValueError(
            f"{name!r} is not a connector's name: write it like amazon_sqs, with at most {_LONGEST_NAME} characters."
        )
    words = name.replace("_", " ")
    names = {
        "name": name,
        "Name": words.title().replace(" ", ""),
        "title": words[0].upper() + words[1:],
        "words": words,
    }
    files = {
        root / f"backend/connectors/{name}.py": _CONNECTOR,
        root / f"tests/integration/connectors/test_{name}.py": _CASES,
    }
    for path, template in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(template.substitute(names))
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--config", str(ROOT / "pyproject.toml")]
    subprocess.run([*ruff, *files], check=True)
    return list(files)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="such as amazon_sqs")
    try:
        for path in write_connector(parser.parse_args().name, ROOT):
            print(path.relative_to(ROOT))
    except (ValueError, FileExistsError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
