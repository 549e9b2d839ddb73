"""Options of a use whose connector type stores them in another form than before."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from backend.domain.capabilities import DeliveryError, Options
from backend.domain.connector import RuntimeConnector, connectors
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.domain.uses import bind, option_versions

FILES, OTHER = UUID(int=1), UUID(int=2)
TYPES = {FILES: "toy_file", OTHER: "http"}
FORMER: dict[str, Any] = {
    "outputs": [
        {"name": "out", "connector": str(FILES), "options": {"name": "orders"}},
        {"name": "other", "connector": str(OTHER), "options": {}},
    ]
}
STORED = {"outputs.0": ("toy_file", "deliver", 1), "outputs.1": ("http", "deliver", 1)}
VERSION = PipelineConfig.schema_version


def upgrade(data: dict[str, Any], version: int) -> dict[str, Any]:
    assert version == 1
    return {"file": data["name"]}


@pytest.fixture(autouse=True)
def second_version(monkeypatch: pytest.MonkeyPatch) -> type[Options]:
    """The toy's options, in whose first version the file was called ``name``."""
    [capability] = connectors.get("toy_file").capabilities
    monkeypatch.setattr(capability.options_model, "schema_version", 2)
    monkeypatch.setattr(capability.options_model, "upgrade", upgrade)
    return capability.options_model


def options(config: PipelineConfig) -> list[dict[str, Any]]:
    return [placed.use.options for placed in config.uses()]


def test_what_was_stored_is_read_in_the_present_form() -> None:
    before = json.dumps(FORMER)
    config = PipelineConfig.load_stored(FORMER, VERSION, STORED)
    assert options(config)[0] == {"file": "orders"}
    assert (
        config.outputs[0].bind(RuntimeConnector(type="toy_file", connection={"folder": "/x"})).target() == "/x/orders"
    )
    assert json.dumps(FORMER) == before
    assert option_versions(config.uses(), TYPES) == STORED | {"outputs.0": ("toy_file", "deliver", 2)}


def test_the_data_plane_reads_what_the_console_has_not_upgraded() -> None:
    snapshot = {"id": str(uuid4()), "workspace_id": str(uuid4()), "version": 1, "accepting": True, "config": FORMER}
    beside = {"schema_version": VERSION, "option_versions": STORED}
    read = PipelineSnapshot.model_validate_json(json.dumps(snapshot | beside))
    assert options(read.config)[0] == {"file": "orders"}
    # What it writes is in the present form, and says nothing of the former one.
    assert PipelineSnapshot.model_validate_json(read.model_dump_json()) == read


def test_options_in_the_present_form_stay_as_they_are() -> None:
    present = {"outputs": [FORMER["outputs"][0] | {"options": {"file": "orders"}}]}
    for versions in ({}, {"outputs.0": ("toy_file", "deliver", 2)}):
        assert PipelineConfig.upgraded(present, VERSION, versions) is present


@pytest.mark.parametrize("known", [("gone", "deliver", 1), ("toy_file", "read_batch", 1)])
def test_what_is_unknown_here_stays_as_it_is(known: tuple[str, str, int]) -> None:
    assert PipelineConfig.upgraded(FORMER, VERSION, {"outputs.0": known}) is FORMER


@pytest.mark.parametrize(
    ("config", "versions", "reason"),
    [
        (
            {"outputs": [FORMER["outputs"][0] | {"options": {}}]},
            STORED,
            r"The options of outputs\.0 cannot be read\. It cannot be upgraded from version 1: KeyError\('name'\)\.",
        ),
        (
            FORMER,
            {"outputs.0": ("toy_file", "deliver", 3)},
            r"The options of outputs\.0 cannot be read\. It was stored by a later release \(version 3 .* up to 2\)",
        ),
        ({}, STORED, r"There are no options at outputs\.0"),
    ],
    ids=["an upgrade that fails", "a later version", "no such use"],
)
def test_what_cannot_be_read_is_named(config: dict[str, Any], versions: Any, reason: str) -> None:
    with pytest.raises(UnreadableConfigError, match=reason):
        PipelineConfig.upgraded(config, VERSION, versions)


def test_options_that_are_stored_by_themselves_are_bound_in_their_present_form() -> None:
    connector = RuntimeConnector(type="toy_file", connection={"folder": "/x"})

    def bound(version: int) -> Any:
        return bind(connector, {"name": "orders"}, lambda type: type.capabilities[0], "deliver", version)

    assert bound(1).options.file == "orders"
    with pytest.raises(DeliveryError, match="later release"):
        bound(3)
