"""The connector of collections."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from backend.connectors import collection
from backend.connectors.collection import CollectionConnection
from backend.domain.connector import CheckFailedError, check_connection, connectors
from backend.settings import Settings
from tests.integration.connectors.suites import CollectSuite, message

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class TestCollection(CollectSuite):
    type = "collection"

    def connection(self) -> dict[str, Any]:
        return {"partitions": 4}

    def options(self) -> dict[str, Any]:
        return {"key": "{{id}}", "delete_when": "gone"}

    def test_messages_that_do_not_fit_the_schema_are_refused(self) -> None:
        collect = self.collect(avro_schema=SCHEMA)
        collect.document(message(b'{"id": 1}'))
        assert self.refused(collect, message(b'{"id": "one"}')) == "unfit_value"
        assert self.refused(collect, message(b'{"id": 1, "more": 2}')) == "unfit_value"

    def test_a_schema_has_to_be_a_record(self) -> None:
        for schema in ({"type": "string"}, {"type": "nonsense"}):
            with pytest.raises(ValidationError):
                CollectionConnection.model_validate({"avro_schema": schema})

    async def test_a_store_that_cannot_be_written_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("not a folder")
        monkeypatch.setattr(collection, "platform_settings", lambda: Settings(collections_url=str(tmp_path / "file/x")))
        with pytest.raises(CheckFailedError, match="HEADRACE_COLLECTIONS_URL"):
            await check_connection(connectors.get(self.type), CollectionConnection.model_validate({}))

    def test_deletions_need_not_fit_the_schema(self) -> None:
        document = self.collect(avro_schema=SCHEMA).document(message(b'{"id": 1, "gone": true}'))
        assert document.deleted

    def test_avro_needs_a_schema_and_has_no_place_for_flags(self) -> None:
        CollectionConnection.model_validate({"values": "avro", "avro_schema": SCHEMA})
        for field, connection in {
            "values": {"values": "avro"},
            "deletions": {"values": "avro", "avro_schema": SCHEMA, "deletions": "cdc"},
        }.items():
            with pytest.raises(ValidationError) as error:
                CollectionConnection.model_validate(connection)
            assert [e["loc"] for e in error.value.errors()] == [(field,)]
