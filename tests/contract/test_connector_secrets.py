"""No connector shows a secret. Secrets are found by their types, not by what masks them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, ValidationError
from rest_framework.test import APIClient

from backend.domain.connector import Connector
from backend.domain.errors import ConfigError
from backend.domain.masking import join_secrets, keep_secrets, secret_values, split_secrets
from backend.domain.model import StrictModel
from tests import factories
from tests.contract.test_connectors import every_connector, models_of
from tests.planted import Planted, instances


class _Login(StrictModel):
    """Within another model."""

    type: Literal["login"] = "login"
    user: str = Field(examples=["somebody"])
    password: SecretStr


class _Keys(StrictModel):
    """The other variant."""

    type: Literal["keys"] = "keys"
    keys: list[SecretStr] | None = None


class _EveryPlace(StrictModel):
    """A secret in every kind of place."""

    plain: SecretStr
    optional: SecretStr | None = None
    listed: list[SecretStr] = []
    lists: list[list[SecretStr]] = []
    pair: tuple[str, SecretStr] = ("", SecretStr(""))
    named: dict[str, SecretStr] = {}
    models: list[_Login] = []
    named_models: dict[str, _Login] = {}
    union: Annotated[_Login | _Keys, Field(discriminator="type")]
    models_in_union: list[_Login | _Keys] = []


def check_shows_none(model: type[BaseModel], planted: Planted) -> None:
    parsed = model.model_validate(planted.data)
    assert set(secret_values(parsed)) == set(planted.secrets.values())
    public, secrets = split_secrets(model, planted.data)
    shown = [repr(parsed), str(parsed), parsed.model_dump_json(), str(parsed.model_dump()), json.dumps(public)]
    shown += [error for data in _broken(planted.data) for error in _errors(model, data)]
    for place, secret in planted.secrets.items():
        assert not [text for text in shown if secret in text], place
    assert join_secrets(public, secrets) == planted.data
    assert keep_secrets(model, public, public, secrets) == planted.data


def _broken(data: Any) -> list[Any]:
    """The same with an unknown field in each object, and with each value in a list, where it does not belong."""
    if isinstance(data, dict):
        inner = [{**data, name: broken} for name, value in data.items() for broken in _broken(value)]
        return [{**data, "unknown": 1}, [data], *inner]
    if isinstance(data, list):
        return [{"in": data}, *([*data[:i], broken] for i, value in enumerate(data) for broken in _broken(value))]
    return [[data], {"in": data}, f"{data} \N{SNOWMAN}"]


def _errors(model: type[BaseModel], data: Any) -> list[str]:
    try:
        model.model_validate(data)
    except ValidationError as error:
        refused = ConfigError.of(error, data, "connection")
        return [str(error), str(refused), json.dumps(refused.errors)]
    return []


def test_the_instances_hold_a_secret_in_every_kind_of_place() -> None:
    examples = list(instances(_EveryPlace))
    for planted in examples:
        check_shows_none(_EveryPlace, planted)
    places = {place for planted in examples for place in planted.secrets}
    assert "_EveryPlace.lists[]1[]0" in places
    assert "_EveryPlace.named{with/slash}" in places
    assert "_EveryPlace.union(_Keys).keys[]1" in places
    assert "_EveryPlace.models_in_union[]0(_Login).password" in places


@every_connector
def test_a_connection_shows_no_secret(connector: type[Connector]) -> None:
    for planted in instances(connector.connection_model, connector.example):
        check_shows_none(connector.connection_model, planted)


@every_connector
def test_options_hold_no_secrets(connector: type[Connector]) -> None:
    """They are stored in the pipeline's configuration, which everybody reads."""
    for model in models_of(connector):
        if model is not connector.connection_model:
            assert not [place for planted in instances(model) for place in planted.secrets]


@pytest.mark.django_db
@every_connector
def test_the_api_shows_no_secret(connector: type[Connector]) -> None:
    workspace = factories.make_workspace()
    client = APIClient()
    client.force_login(factories.admin_of(workspace))
    secrets: dict[str, str] = {}
    for number, planted in enumerate(instances(connector.connection_model, connector.example)):
        for needed in connector.connection_model.model_validate(planted.data).connectors().values():
            other = {"name": needed.name, "type": needed.type, "connection": {}}
            client.post("/api/v1/connectors/", other, format="json")
        body = {"name": f"Connector {number}", "type": connector.type, "connection": planted.data}
        created = client.post("/api/v1/connectors/", body, format="json")
        assert created.status_code == 201, created.content
        url = f"/api/v1/connectors/{created.json()['id']}/"
        wrong = body | {"name": "Other", "connection": {**planted.data, "unknown": 1}}
        answers = [
            created,
            client.get(url),
            client.put(url, created.json() | {"name": f"Renamed {number}"}, format="json"),
            client.put(url, wrong, format="json"),
            client.post("/api/v1/connectors/", wrong, format="json"),
            client.post("/api/v1/connectors/test/", wrong, format="json"),
        ]
        assert [answer.status_code for answer in answers] == [201, 200, 200, 400, 400, 400]
        check_hold_none(answers, planted.secrets)
        secrets |= {f"{number} {place}": secret for place, secret in planted.secrets.items()}
    pages = [*all_pages(client, "/api/v1/connectors/"), *all_pages(client, "/api/v1/audit/")]
    files = client.get("/api/v1/config-files/")
    assert files.status_code == 200
    check_hold_none([*pages, files], secrets)


def all_pages(client: APIClient, url: str | None) -> Iterator[Any]:
    while url is not None:
        page = client.get(url)
        yield page
        url = page.json()["next"]


def check_hold_none(answers: Sequence[Any], secrets: Mapping[str, str]) -> None:
    texts = [answer.content.decode() for answer in answers]
    for place, secret in secrets.items():
        assert not [text for text in texts if secret in text], place
