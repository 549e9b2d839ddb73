"""The list of connector types, of which any plugin may be broken."""

from typing import Any

import pytest

from backend.apps.connectors.selectors import connector_types
from backend.domain.capabilities import Connection
from backend.domain.connector import Connector, connectors


class Undescribable(Connector):
    """A system whose connection model names a type that does not exist."""

    type = "undescribable"
    title = "Undescribable"
    capabilities = ()
    example: dict[str, Any] = {}

    @staticmethod
    async def check(connection: Any) -> str:
        return "Reached."


def test_types_that_are_broken_are_listed_as_unavailable_and_affect_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = connector_types()
    assert [described["type"] for described in sound] == [cls.type for cls in connectors]
    model = type("Broken", (Connection,), {"__annotations__": {"field": "NoSuchType"}, "__module__": __name__})
    monkeypatch.setattr(Undescribable, "connection_model", model, raising=False)
    monkeypatch.setitem(connectors._classes, "undescribable", Undescribable)
    monkeypatch.setitem(connectors._broken, "acme_sap", "The module acme_sap cannot be loaded: OSError.")
    types = {described["type"]: described for described in connector_types()}
    assert types.pop("acme_sap") == {
        "type": "acme_sap",
        "title": "Acme sap",
        "description": "",
        "unavailable": "The module acme_sap cannot be loaded: OSError.",
        "connection_schema": {"type": "object", "properties": {}},
        "capabilities": {},
    }
    assert "`Broken` is not fully defined" in types.pop("undescribable")["unavailable"]
    assert list(types.values()) == sound


def test_only_a_connector_that_divides_tables_asks_for_the_number_of_readers() -> None:
    types = {described["type"]: described for described in connector_types()}

    def whole_table(type: str) -> dict[str, Any]:
        definitions = types[type]["capabilities"]["read_batch"]["options_schema"]["$defs"].values()
        [mode] = [definition for definition in definitions if definition["title"] == "Whole table"]
        return dict(mode["properties"])

    assert whole_table("sql").keys() - whole_table("jdbc").keys() == {"readers"}
