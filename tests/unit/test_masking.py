from backend.connectors.http import HttpConnection
from backend.domain.capabilities import DeliveryError
from backend.domain.masking import MASK, join_secrets, redacted, secret_values, split_secrets

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
    public["secret_headers"]["X-Key"] = "new"
    assert join_secrets(public, secrets)["secret_headers"]["X-Key"] == "new"


def test_a_removed_field_stays_removed() -> None:
    public, secrets = split_secrets(HttpConnection, CONNECTION)
    public["authentication"] = {"type": "none"}
    assert join_secrets(public, secrets)["authentication"] == {"type": "none"}


def test_secrets_that_a_receiver_sends_back_are_masked() -> None:
    secrets = list(secret_values(HttpConnection.model_validate(CONNECTION)))
    assert sorted(secrets) == ["h-secret", "p-secret"]
    assert redacted('{"X-Key": "h-secret", "n": 1}', secrets) == f'{{"X-Key": "{MASK}", "n": 1}}'
    assert redacted("a1", ["a"]) == "a1"
    error = DeliveryError("http_400", "said p-secret", retryable=False, status="400", response="p-secret!")
    shown = error.without(secrets)
    assert (str(shown), shown.response, shown.reason) == (f"said {MASK}", f"{MASK}!", "http_400")
