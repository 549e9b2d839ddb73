"""Where pipelines use connectors, and how stored configurations are read by later releases."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.domain.capabilities import DeliveryError
from backend.domain.connector import RuntimeConnector, connectors
from backend.domain.idle_cache import IdleCache
from backend.domain.inputs.connector import ConnectorInput
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import OutputConfig, PipelineConfig, PipelineSnapshot
from backend.domain.registry import BrokenComponentError, Registry, UnknownComponentError
from backend.domain.uses import CONNECTOR_IDS, CONNECTOR_NAMES

HTTP, WEBHOOK, LINES = UUID(int=1), UUID(int=2), UUID(int=3)
CONFIG: dict[str, Any] = {
    "input": {"type": "http", "verification": {"connector": str(WEBHOOK)}},
    "transforms": [{"type": "call", "name": "people", "connector": str(HTTP), "to": "answer"}],
    "outputs": [{"name": "out", "connector": str(HTTP)}, {"name": "other", "connector": str(LINES)}],
}


def test_every_use_is_found_at_its_place() -> None:
    config = PipelineConfig.model_validate(CONFIG)
    assert [(placed.path, placed.use.connector) for placed in config.uses()] == [
        (("input", "verification"), WEBHOOK),
        (("transforms", 0), HTTP),
        (("outputs", 0), HTTP),
        (("outputs", 1), LINES),
    ]
    assert config.connectors == {HTTP, WEBHOOK, LINES}
    assert config.breakers == ["API-people", "out", "other"]


def test_connectors_may_be_called_by_name_and_unknown_names_are_told_at_their_place() -> None:
    named = {
        "input": {"type": "connector", "connector": "Files", "options": {"file": "a"}},
        "outputs": [{"name": "out", "connector": "ERP"}],
    }
    config = PipelineConfig.model_validate(named, context={CONNECTOR_IDS: {"ERP": HTTP, "Files": LINES}})
    assert config.connectors == {HTTP, LINES}
    shown = config.model_dump(mode="json", context={CONNECTOR_NAMES: {HTTP: "ERP", LINES: "Files"}})
    assert (shown["input"]["connector"], shown["outputs"][0]["connector"]) == ("Files", "ERP")
    with pytest.raises(ValidationError) as refused:
        PipelineConfig.model_validate(named, context={CONNECTOR_IDS: {"ERP": HTTP}})
    assert [error["loc"][-1] for error in refused.value.errors()] == ["connector"]
    assert "no connector 'Files'" in str(refused.value)


@given(st.integers(1, 86_400))
def test_the_interval_of_an_input_is_a_second_to_a_day(seconds: int) -> None:
    assert ConnectorInput.model_validate({"connector": LINES, "every_seconds": seconds}).every_seconds == seconds


@given(st.integers(max_value=0) | st.integers(min_value=86_401) | st.floats(1.01, 1.99) | st.just(float("nan")))
def test_any_other_interval_is_refused_at_its_field(seconds: float) -> None:
    with pytest.raises(ValidationError) as refused:
        ConnectorInput.model_validate({"connector": LINES, "every_seconds": seconds})
    assert [error["loc"] for error in refused.value.errors()] == [("every_seconds",)]


def test_an_input_that_says_nothing_of_its_interval_is_read_every_half_minute() -> None:
    assert ConnectorInput.model_validate({"connector": LINES}).every_seconds == 30


@pytest.mark.parametrize(
    ("type", "mode", "expected"),
    [
        ("toy_journal", None, "read_batch"),
        ("toy_journal", "batch", "read_batch"),
        ("toy_journal", "stream", "read_stream"),
        ("toy_ticks", None, "read_stream"),
        ("toy_ticks", "stream", "read_stream"),
        ("toy_ticks", "batch", None),
    ],
)
def test_an_input_is_read_as_its_mode_says(type: str, mode: Any, expected: str | None) -> None:
    capability = ConnectorInput(connector=LINES, mode=mode).capability_of(connectors.get(type))
    assert (capability.name if capability else None) == expected


def test_a_mode_that_the_connector_lacks_is_refused_at_its_field() -> None:
    def refusals(type: str, mode: Any) -> dict[str, str]:
        return ConnectorInput(connector=LINES, mode=mode).refusals(connectors.get(type), "Shop")

    other = "choose the other mode, or leave it out."
    assert refusals("toy_ticks", "batch") == {"mode": f"Shop cannot be read in batches: {other}"}
    assert refusals("toy_lines", "stream") == {"mode": f"Shop cannot be read as a stream: {other}"}
    assert refusals("toy_journal", "stream") == refusals("toy_ticks", None) == {}
    # One that cannot be read at all is the wrong connector, whatever the mode.
    assert refusals("webhook", "stream") == {"connector": "Shop cannot be read in batches."}
    with pytest.raises(DeliveryError, match="cannot be read as a stream"):
        ConnectorInput(connector=LINES, mode="stream").bind(RuntimeConnector(type="toy_lines", connection={}))


def test_the_schema_says_which_capability_each_mode_takes() -> None:
    mode = PipelineConfig.model_json_schema()["$defs"]["ConnectorInput"]["properties"]["mode"]
    assert mode["reads_by"] == {"batch": "read_batch", "stream": "read_stream"}


def test_the_schema_marks_every_use_with_what_it_asks_for() -> None:
    schema = PipelineConfig.model_json_schema()
    marks = {
        name: definition["properties"]["connector"]["capabilities"]
        for name, definition in schema["$defs"].items()
        if definition.get("properties", {}).get("connector", {}).get("format") == "connector"
    }
    assert marks == {
        "Call": ["call"],
        "ConnectorInput": ["read_batch", "read_stream"],
        "OutputConfig": ["deliver", "deliver_batch", "export", "collect"],
        "Verification": ["verify"],
    }


@pytest.mark.parametrize(
    ("type", "batch", "expected"),
    [("http", None, "deliver"), ("http", {}, "deliver_batch"), ("toy_file", {}, "deliver"), ("webhook", None, None)],
)
def test_an_output_takes_the_capability_that_suits_it(type: str, batch: Any, expected: str | None) -> None:
    output = OutputConfig.model_validate({"name": "out", "connector": str(HTTP), "batch": batch})
    capability = output.capability_of(connectors.get(type))
    assert (capability.name if capability else None) == expected


def test_what_an_output_asks_in_vain_is_refused_at_its_field() -> None:
    plain = OutputConfig.model_validate({"name": "out", "connector": str(HTTP)})
    assert plain.refusals(connectors.get("webhook"), "Shop") == {"connector": "Shop cannot deliver messages."}
    batched = OutputConfig.model_validate({"name": "out", "connector": str(HTTP), "batch": {}})
    assert batched.refusals(connectors.get("toy_file"), "Disk") == {"batch": "Disk cannot deliver messages in batches."}
    with pytest.raises(ValidationError, match="never fills with a queue of 10"):
        OutputConfig.model_validate({"name": "o", "connector": str(HTTP), "batch": {"messages": 11}, "queue": 10})


@pytest.mark.parametrize(
    "connector",
    [
        RuntimeConnector(type="gone", connection={}),
        RuntimeConnector(type="webhook", connection={}),
        RuntimeConnector(type="http", connection={"url": "nonsense"}),
        RuntimeConnector(type="http", connection={}, error="The secret was changed."),
    ],
)
def test_a_use_that_cannot_be_bound_says_why(connector: RuntimeConnector) -> None:
    with pytest.raises(DeliveryError) as refused:
        OutputConfig.model_validate({"name": "out", "connector": str(HTTP)}).bind(connector)
    assert refused.value.reason == "configuration"


def test_a_configuration_of_the_first_version_is_upgraded() -> None:
    stored = {
        "input": {"type": "http", "verification": str(WEBHOOK)},
        "transforms": [
            {"type": "set", "path": "a", "value": 1},
            {"type": "http_call", "connector": str(HTTP), "path": "/{{id}}", "method": "GET", "body": None, "to": "x"},
        ],
        "outputs": [{"name": "out", "connector": str(HTTP)}],
    }
    config = PipelineConfig.load_stored(stored, 1)
    assert [placed.path for placed in config.uses()] == [("input", "verification"), ("transforms", 1), ("outputs", 0)]
    assert config.uses()[1].use.options == {"path": "/{{id}}", "method": "GET", "body": None}
    # A snapshot in Redis that the former release wrote is read as well.
    snapshot = {"id": str(uuid4()), "workspace_id": str(uuid4()), "version": 1, "accepting": True, "config": stored}
    assert PipelineSnapshot.model_validate(snapshot).config == config


def test_what_cannot_be_read_says_so_without_values() -> None:
    with pytest.raises(UnreadableConfigError, match="stored by a later release"):
        PipelineConfig.load_stored({}, PipelineConfig.schema_version + 1)
    with pytest.raises(UnreadableConfigError, match=r"outputs\.0\.nonsense") as refused:
        PipelineConfig.load_stored({"outputs": [{"name": "o", "connector": str(HTTP), "nonsense": "s3cret"}]}, 2)
    assert "s3cret" not in str(refused.value)
    with pytest.raises(UnreadableConfigError, match="cannot be upgraded"):
        PipelineConfig.load_stored({"transforms": [{"no": "type"}]}, 1)


SOUND = """
from tests.unit.test_uses import REGISTRIES
@REGISTRIES[-1].register
class Component:
    type = "{type}"
"""
REGISTRIES: list[Registry[Any]] = []


@pytest.fixture
def half_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    """A registry over three sound modules, and others that fail: at once, after having registered a type, by taking
    the type of a sound one, and under a name that is the type of a sound one."""
    sources = {
        "sound": SOUND.format(type="sound"),
        "another": SOUND.format(type="another"),
        "third": SOUND.format(type="shared_name"),
        "broken": "import a_package_that_is_not_there",
        "late": f"{SOUND.format(type='of_late')}\nraise RuntimeError('Line one.\\nLine two.')",
        "z_taker": SOUND.format(type="sound"),
        "shared_name": "1 / 0",
    }
    name = f"half_broken_{len(REGISTRIES)}"
    (tmp_path / name).mkdir()
    for module, source in {"__init__": "", **sources}.items():
        (tmp_path / name / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    REGISTRIES.append(Registry(name, skip_broken=True))
    return REGISTRIES[-1]


def test_a_broken_component_is_kept_apart_with_its_reason(half_broken: Registry[Any]) -> None:
    package = half_broken._package
    assert [cls.type for cls in half_broken] == ["another", "shared_name", "sound"]
    assert half_broken.broken == {
        "broken": f"The module {package}.broken cannot be loaded: "
        "ModuleNotFoundError: No module named 'a_package_that_is_not_there'.",
        "of_late": f"The module {package}.late cannot be loaded: RuntimeError: Line one. Line two.",
        f"{package}.shared_name": f"The module {package}.shared_name cannot be loaded: "
        "ZeroDivisionError: division by zero.",
        "z_taker": f"The module {package}.z_taker cannot be loaded: "
        f"ValueError: Two components of {package} have the type 'sound'.",
    }
    with pytest.raises(ModuleNotFoundError):
        list(Registry(package))


def test_who_asks_for_a_broken_component_learns_why(half_broken: Registry[Any]) -> None:
    with pytest.raises(
        BrokenComponentError, match=r"'of_late' cannot be used\. .* RuntimeError: Line one\. Line two\."
    ):
        half_broken.get("of_late")
    with pytest.raises(UnknownComponentError, match=r"Unknown type 'other'; .*a_package_that_is_not_there"):
        half_broken.get("other")


def test_messages_wait_for_a_connector_whose_module_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not connectors.broken
    monkeypatch.setitem(connectors._broken, "sap", "The module backend.connectors.sap cannot be loaded: OSError.")
    with pytest.raises(DeliveryError, match="OSError") as refused:
        OutputConfig.model_validate({"name": "out", "connector": str(HTTP)}).bind(
            RuntimeConnector(type="sap", connection={})
        )
    assert refused.value.retryable


def test_a_connector_whose_vendor_package_is_missing_is_unavailable_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = connectors.get("toy_file")
    monkeypatch.setattr(toy, "requires", ("a_package_that_is_not_there",))
    assert "a_package_that_is_not_there is not installed" in toy.unavailable()
    assert connectors.get("http").unavailable() == ""


def packages(folder: Path, **sources: str) -> None:
    """Makes packages, each with that source and an empty module ``inner``."""
    for name, source in sources.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(source)
        (folder / name / "inner.py").write_text("")


@pytest.mark.parametrize(
    ("required", "reason"),
    [
        ("a_package_that_is_not_there.below.it", "The Python package {} is not installed on this server."),
        ("a_sound_package.a_module_that_is_not_there", "The Python package {} is not installed on this server."),
        ("a_sound_package.inner.below", "The Python package {} is not installed on this server."),
        ("a_broken_package.inner", "The Python package {} cannot be loaded on this server: RuntimeError: No driver."),
        (
            "a_needy_package.inner",
            "The Python package {} cannot be loaded on this server: "
            "ModuleNotFoundError: No module named 'a_package_that_is_not_there'.",
        ),
        (
            "a_package_without_a_specification",
            "The Python package {} cannot be loaded on this server: "
            "ValueError: a_package_without_a_specification.__spec__ is None.",
        ),
        ("a_sound_package.inner", ""),
    ],
)
def test_a_vendor_package_whose_lookup_fails_makes_only_its_connector_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: str, reason: str
) -> None:
    packages(
        tmp_path,
        a_sound_package="",
        a_broken_package="raise RuntimeError('No driver.')",
        a_needy_package="import a_package_that_is_not_there",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(
        sys.modules, "a_package_without_a_specification", ModuleType("a_package_without_a_specification")
    )
    toy = connectors.get("toy_file")
    monkeypatch.setattr(toy, "requires", ("pydantic", required))
    assert toy.unavailable() == reason.format(required)


def test_values_that_nobody_reads_are_dropped() -> None:
    now = 0.0
    cache: IdleCache[str, int] = IdleCache(60, clock=lambda: now)
    cache["used"], cache["unused"] = 1, 2
    for now in (30.0, 59.0, 90.0):
        assert cache.get("used") == 1
        cache[f"at {now}"] = 3
    assert cache.get("unused") is None
    assert cache.get("used") == 1
