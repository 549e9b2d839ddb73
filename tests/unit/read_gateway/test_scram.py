"""Both sides of SCRAM against each other."""

import pytest

from backend.kafka.server.scram import DIGESTS, ClientExchange, ScramError, ServerExchange, Verifier

_SALT = b"0123456789abcdef"


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_the_server_finds_which_of_several_keys_the_client_has(mechanism: str) -> None:
    verifiers = [Verifier.of(mechanism, key, _SALT) for key in ("hr_one", "hr_two", "hr_three")]
    client = ClientExchange(mechanism, "demo,=", "hr_two")
    server = ServerExchange(mechanism, client.first())
    assert server.user == "demo,="
    verifier, last = server.finish(client.final(server.challenge(_SALT)), verifiers)
    assert verifier is verifiers[1]
    client.verify(last)


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_a_wrong_key_and_a_replayed_proof_are_refused(mechanism: str) -> None:
    verifiers = [Verifier.of(mechanism, "hr_one", _SALT)]
    client = ClientExchange(mechanism, "demo", "hr_other")
    server = ServerExchange(mechanism, client.first())
    with pytest.raises(ScramError):
        server.finish(client.final(server.challenge(_SALT)), verifiers)
    client = ClientExchange(mechanism, "demo", "hr_one")
    server = ServerExchange(mechanism, client.first())
    final = client.final(server.challenge(_SALT))
    server.finish(final, verifiers)
    again = ServerExchange(mechanism, client.first())
    again.challenge(_SALT)
    with pytest.raises(ScramError):
        again.finish(final, verifiers)


@pytest.mark.parametrize("first", [b"", b"n,,n=,r=x", b"n,,n=a", b"p=tls-unique,,n=a,r=x", b"\xff", b"n,,r=x"])
def test_what_is_no_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(ScramError):
        ServerExchange("SCRAM-SHA-256", first)


@pytest.mark.parametrize("final", [b"", b"c=biws", b"\xff", b"c=biws,r=x,p=", b"c=biws,r=x,p=!!"])
def test_what_is_no_last_message_is_refused(final: bytes) -> None:
    server = ServerExchange("SCRAM-SHA-256", b"n,,n=a,r=x")
    server.challenge(_SALT)
    with pytest.raises(ScramError):
        server.finish(final, [Verifier.of("SCRAM-SHA-256", "k", _SALT)])
