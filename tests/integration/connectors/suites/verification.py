"""For the capability ``verify``."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pytest

from backend.domain import json
from backend.domain.capabilities import VerificationError, Verify
from backend.domain.connector import check_connection, connectors
from tests.integration.connectors.suites.common import hides_secrets
from tests.integration.connectors.suites.inputs import DOCUMENTS


@dataclass
class Genuine:
    """What a sender that has the secret sends with a body, and the headers that prove it."""

    headers: dict[str, str]
    proofs: tuple[str, ...]


class VerifySuite(ABC):
    """For connectors with the capability ``verify``; a class for each way to prove where a request comes from."""

    type: str
    proves_body = True
    """Whether another body needs other headers."""

    @abstractmethod
    def connection(self) -> dict[str, Any]:
        """What the receiver of requests has saved."""

    @abstractmethod
    def sent(self, body: bytes) -> Genuine:
        """The headers of a genuine request, by their lower-case names, made by another implementation if there is
        one."""

    @abstractmethod
    def foreign(self, body: bytes) -> Genuine:
        """The same from a sender that has another secret."""

    def verify(self, headers: dict[str, str], body: bytes) -> None:
        self._bound().verify({name: [value] for name, value in headers.items()}, body)

    def refused(self, headers: dict[str, str], body: bytes) -> None:
        with pytest.raises(VerificationError) as refused:
            self.verify(headers, body)
        assert hides_secrets(self.type, self.connection(), str(refused.value))

    def test_genuine_requests_of_every_kind_of_body_are_accepted(self) -> None:
        for body in (b"", b"\r\n", *map(json.dumps, DOCUMENTS)):
            self.verify(self.sent(body).headers | {"content-type": "application/json"}, body)

    def test_another_secret_is_refused(self) -> None:
        self.refused(self.foreign(b"{}").headers, b"{}")

    def test_a_proof_that_lacks_or_was_changed_is_refused(self) -> None:
        genuine = self.sent(b"{}")
        self.refused({}, b"{}")
        for name in genuine.proofs:
            proof = genuine.headers[name]
            self.refused({key: value for key, value in genuine.headers.items() if key != name}, b"{}")
            for changed in {"", proof[:-2], f"{proof}=", proof.swapcase(), "ÿ", "²", "0" * 5_000} - {proof}:
                self.refused(genuine.headers | {name: changed}, b"{}")

    def test_a_body_that_was_changed_is_refused_where_the_proof_is_of_the_body(self) -> None:
        genuine = self.sent(b'{"amount": 1}')
        for changed in (b'{"amount": 2}', b'{"amount": 1} ', b""):
            if self.proves_body:
                self.refused(genuine.headers, changed)
            else:
                self.verify(genuine.headers, changed)

    def test_its_model_shows_no_secret(self) -> None:
        bound = self._bound()
        assert hides_secrets(self.type, self.connection(), repr(bound.connection) + repr(bound.options))

    async def test_a_connection_test_says_what_proves_it(self) -> None:
        connector = connectors.get(self.type)
        assert (await check_connection(connector, self._bound().connection)).endswith(".")

    def _bound(self) -> Verify[Any, Any]:
        connector = connectors.get(self.type)
        kind = connector.capability(Verify)
        assert kind is not None
        return kind(connector.connection_model.model_validate(self.connection()), kind.options_model())
