import itertools
import json
from random import Random
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr, StringConstraints

from backend.connectors.http.connection import HttpConnection
from backend.domain.capabilities import DeliveryError
from backend.domain.masking import MASK, join_secrets, keep_secrets, redacted, secret_values, split_secrets
from backend.domain.model import StrictModel

CONNECTION = {
    "url": "https://example.com",
    "authentication": {"type": "basic", "username": "u", "password": "p-secret"},
    "secret_headers": {"X-Key": "h-secret"},
}


def test_secrets_are_found_in_unions_and_maps() -> None:
    public, secrets = split_secrets(HttpConnection, CONNECTION)
    assert secrets == {"authentication/password": "p-secret", "secret_headers/X-Key": "h-secret"}
    assert public["authentication"]["password"] == public["secret_headers"]["X-Key"] == MASK
    assert "secret" not in str(public).replace("secret_headers", "")


def test_join_is_the_inverse() -> None:
    assert join_secrets(*split_secrets(HttpConnection, CONNECTION)) == CONNECTION


def test_a_new_value_replaces_the_stored_one() -> None:
    public, secrets = split_secrets(HttpConnection, CONNECTION)
    sent = public | {"secret_headers": {"X-Key": "new"}}
    assert keep_secrets(HttpConnection, sent, public, secrets)["secret_headers"]["X-Key"] == "new"


def test_a_removed_field_stays_removed() -> None:
    public, secrets = split_secrets(HttpConnection, CONNECTION)
    sent = public | {"authentication": {"type": "none"}}
    assert keep_secrets(HttpConnection, sent, public, secrets)["authentication"] == {"type": "none"}


def test_secrets_that_a_receiver_sends_back_are_masked() -> None:
    secrets = list(secret_values(HttpConnection.model_validate(CONNECTION)))
    assert sorted(secrets) == ["h-secret", "p-secret"]
    assert redacted('{"X-Key": "h-secret", "n": 1}', secrets) == f'{{"X-Key": "{MASK}", "n": 1}}'
    assert redacted("a1", ["a"]) == "a1"
    error = DeliveryError("http_400", "said p-secret", retryable=False, status="400", response="p-secret!")
    shown = error.without(secrets)
    assert (str(shown), shown.response, shown.reason) == (f"said {MASK}", f"{MASK}!", "http_400")


def test_the_schema_of_a_model_is_made_once() -> None:
    """It takes tens of milliseconds, and every request that saves a connector looks for its secrets."""
    made = []

    class Counted(StrictModel):
        token: SecretStr

        @classmethod
        def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
            made.append(cls)
            return super().model_json_schema(*arguments, **options)

    assert [split_secrets(Counted, {"token": token})[1] for token in "ab"] == [{"token": "a"}, {"token": "b"}]
    assert made == [Counted]


class Login(StrictModel):
    """A name and what proves it."""

    user: str
    password: SecretStr


class Server(StrictModel):
    """Has an identity."""

    name: str
    host: str = ""
    token: SecretStr | None = None


class NoLogin(StrictModel):
    """One variant."""

    type: Literal["none"] = "none"


class TokenLogin(StrictModel):
    """The other, whose secrets are in a list."""

    type: Literal["tokens"] = "tokens"
    tokens: list[SecretStr]


class Many(StrictModel):
    """Secrets in every kind of place."""

    tokens: list[SecretStr] = []
    optional: list[SecretStr] | None = None
    nested: list[list[SecretStr]] = []
    pair: tuple[str, SecretStr] | None = None
    logins: list[Login] = []
    servers: list[Server] = []
    by_name: dict[str, Login] = {}
    lists_by_name: dict[str, list[Login]] = {}
    headers: dict[Annotated[str, StringConstraints(pattern="^.+$")], SecretStr] = {}
    authentication: Annotated[NoLogin | TokenLogin, Field(discriminator="type")] = NoLogin()
    either: SecretStr | Login | list[SecretStr] | None = None


_ALPHABET = "ab~/.01"
_names = st.text(_ALPHABET, min_size=1, max_size=4)
_numbers = itertools.count()
_secrets = st.builds(lambda _: f"s3cret-{next(_numbers)}-", st.none())
_logins = st.fixed_dictionaries({"user": _names, "password": _secrets})
_servers = st.fixed_dictionaries({"name": _names}, optional={"host": _names, "token": st.none() | _secrets})
_data = st.fixed_dictionaries(
    {},
    optional={
        "tokens": st.lists(_secrets, max_size=3),
        "optional": st.none() | st.lists(_secrets, max_size=3),
        "nested": st.lists(st.lists(_secrets, max_size=2), max_size=3),
        "pair": st.none() | st.tuples(_names, _secrets).map(list),
        "logins": st.lists(_logins, max_size=3),
        "servers": st.lists(_servers, max_size=3),
        "by_name": st.dictionaries(_names, _logins, max_size=3),
        "lists_by_name": st.dictionaries(_names, st.lists(_logins, max_size=2), max_size=3),
        "headers": st.dictionaries(_names, _secrets, max_size=3),
        "authentication": st.just({"type": "none"})
        | st.fixed_dictionaries({"type": st.just("tokens"), "tokens": st.lists(_secrets, max_size=2)}),
        "either": _secrets | _logins | st.lists(_secrets, max_size=2) | st.none(),
    },
)


@given(_data)
def test_join_is_the_inverse_of_split_and_what_is_public_holds_no_secret(data: dict[str, Any]) -> None:
    public, secrets = split_secrets(Many, data)
    assert sorted(secrets.values()) == sorted(secret_values(Many.model_validate(data)))
    assert "s3cret" not in json.dumps(public)
    assert join_secrets(public, secrets) == data


@given(_data)
def test_what_is_sent_back_as_it_was_shown_keeps_every_secret(data: dict[str, Any]) -> None:
    public, secrets = split_secrets(Many, data)
    assert keep_secrets(Many, public, public, secrets) == data


@given(_data, st.randoms())
def test_a_mask_never_takes_the_secret_of_another_item(data: dict[str, Any], random: Random) -> None:
    public, secrets = split_secrets(Many, data)
    sent, expected = edited(public, data, random)
    assert_same_or_masked(keep_secrets(Many, sent, public, secrets), expected)


def edited(shown: Any, real: Any, random: Random) -> tuple[Any, Any]:
    """Removes items of every list and shuffles the others, in what was shown and in what it stands for.

    A list that looks as before has not been edited, as far as anybody can tell.
    """
    if isinstance(shown, dict):
        parts = {name: edited(shown[name], real[name], random) for name in shown if name != "pair"}
        return {name: part for name, (part, _) in parts.items()}, {name: part for name, (_, part) in parts.items()}
    if isinstance(shown, list):
        kept = [edited(*item, random) for item in zip(shown, real, strict=True) if random.random() < 0.7]
        random.shuffle(kept)
        if [item for item, _ in kept] != shown:
            return [item for item, _ in kept], [item for _, item in kept]
    return shown, real


def assert_same_or_masked(kept: Any, expected: Any) -> None:
    if isinstance(kept, dict):
        assert kept.keys() == expected.keys()
        for name in kept:
            assert_same_or_masked(kept[name], expected[name])
    elif isinstance(kept, list):
        for one, other in zip(kept, expected, strict=True):
            assert_same_or_masked(one, other)
    else:
        assert kept in (MASK, expected)


def test_a_name_may_hold_what_separates_steps() -> None:
    data = {"headers": {"a/b": "one", "a~1b": "two", "a": "three"}}
    public, secrets = split_secrets(Many, data)
    assert secrets == {"headers/a~1b": "one", "headers/a~01b": "two", "headers/a": "three"}
    assert join_secrets(public, secrets) == data


def test_an_item_with_a_name_keeps_its_secret_wherever_it_moves() -> None:
    servers = [{"name": "a", "host": "1", "token": "of-a"}, {"name": "b", "token": "of-b"}]
    public, secrets = split_secrets(Many, {"servers": servers})
    sent = {"servers": [{"name": "b", "token": MASK}, {"name": "a", "host": "2", "token": MASK}]}
    kept = keep_secrets(Many, sent, public, secrets)
    assert [server["token"] for server in kept["servers"]] == ["of-b", "of-a"]


@pytest.mark.parametrize(
    ("field", "stored", "sent", "kept"),
    [
        ("tokens", ["one", "two"], [MASK], [MASK]),
        ("tokens", ["one", "two"], [MASK, "new"], [MASK, "new"]),
        ("tokens", ["one"], ["new", MASK], ["new", MASK]),
        ("tokens", ["one", "two", "three"], [MASK, "new", MASK], [MASK, "new", MASK]),
        ("nested", [["one"], ["two"]], [[MASK]], [[MASK]]),
        (
            "logins",
            [{"user": "u", "password": "one"}, {"user": "u", "password": "two"}],
            [{"user": "u", "password": MASK}],
            [{"user": "u", "password": MASK}],
        ),
        (
            "logins",
            [{"user": "u", "password": "one"}, {"user": "v", "password": "two"}],
            [{"user": "v", "password": MASK}],
            [{"user": "v", "password": "two"}],
        ),
        (
            "logins",
            [{"user": "u", "password": "one"}],
            [{"user": "changed", "password": MASK}],
            [{"user": "changed", "password": MASK}],
        ),
        (
            "servers",
            [{"name": "a", "token": "one"}],
            [{"name": "a", "token": MASK}, {"name": "a", "token": MASK}],
            [{"name": "a", "token": MASK}, {"name": "a", "token": MASK}],
        ),
        ("servers", [{"name": "a", "token": "one"}], [{"name": "b", "token": MASK}], [{"name": "b", "token": MASK}]),
    ],
)
def test_what_cannot_be_told_apart_stays_masked(field: str, stored: Any, sent: Any, kept: Any) -> None:
    public, secrets = split_secrets(Many, {field: stored})
    assert keep_secrets(Many, {field: sent}, public, secrets) == {field: kept}


def test_one_object_in_two_places_keeps_its_secret_in_both() -> None:
    login = {"user": "u", "password": "one"}
    public, secrets = split_secrets(Many, {"logins": [login, login]})
    assert set(secrets.values()) == {"one"}
    assert join_secrets(public, secrets) == {"logins": [login, login]}
