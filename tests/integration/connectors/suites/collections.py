"""For the capability ``collect``."""

from abc import ABC, abstractmethod
from typing import Any

import pytest
from msgspec.structs import replace

from backend.domain.capabilities import Collect, DeliveryError
from backend.domain.connector import check_connection, connectors
from backend.domain.message import Message
from tests.integration.connectors.suites.common import hides_secrets, message


class CollectSuite(ABC):
    """For connectors with the capability ``collect``."""

    type: str

    @abstractmethod
    def connection(self) -> dict[str, Any]:
        """A collection with several partitions."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """By which a document's key is the field ``id``, and ``gone`` marks a deletion."""

    def collect(self, **connection: Any) -> Collect[Any, Any]:
        connector = connectors.get(self.type)
        kind = connector.capability(Collect)
        assert kind is not None
        return kind(
            connector.connection_model.model_validate(self.connection() | connection),
            kind.options_model.model_validate(self.options()),
        )

    def refused(self, collect: Collect[Any, Any], refused: Message) -> str:
        with pytest.raises(DeliveryError) as error:
            collect.document(refused)
        assert error.value.about_message
        assert not error.value.retryable
        assert hides_secrets(self.type, self.connection(), str(error.value))
        return error.value.reason

    def test_a_document_is_the_same_on_every_repeat(self) -> None:
        messages = [
            message(b'{"id": %d, "gone": %s}' % (number, b"true" if number % 3 else b"1")) for number in range(20)
        ]
        documents = [self.collect().document(one) for one in messages]
        assert [self.collect().document(one) for one in messages] == documents
        assert [document.key for document in documents] == [b"%d" % number for number in range(20)]
        assert [document.deleted for document in documents] == [bool(number % 3) for number in range(20)]

    def test_documents_with_the_same_key_share_a_partition_and_others_spread(self) -> None:
        collect = self.collect()
        documents = [collect.document(message(b'{"id": "%d"}' % (number % 50))) for number in range(200)]
        places: dict[bytes, set[int]] = {}
        for document in documents:
            places.setdefault(document.key, set()).add(document.partition)
        assert all(len(partitions) == 1 for partitions in places.values())
        assert set.union(*places.values()) == set(range(documents[0].partitions))

    def test_messages_that_cannot_be_documents_are_refused(self) -> None:
        collect = self.collect()
        collect.document(message(b'{"id": "ok"}'))
        for body in (b"", b"no JSON", b"{}", b'{"id": null}', b'{"id": {}}', b'{"id": "%s"}' % (b"x" * 5000)):
            self.refused(collect, message(body))

    def test_any_content_type_may_be_kept_where_no_field_is_asked_for(self) -> None:
        collect = self.collect()
        collect.document(replace(message(b'{"id": 1}'), content_type="text/plain"))

    async def test_a_connection_test_says_whether_documents_can_be_stored(self) -> None:
        connector = connectors.get(self.type)
        text = await check_connection(connector, connector.connection_model.model_validate(self.connection()))
        assert text.endswith(".")
