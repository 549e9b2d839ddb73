"""The connector of change streams. How they are sent is tested in tests/integration/change_streams."""

from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from backend.connectors.materialize_cdc.connection import MaterializeConnection
from tests.integration.connectors.suites import CollectSuite, Reaching, message
from tests.receiver import Receiver, receiver_in_thread

SCHEMA = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "id", "type": ["long", "string"]},
        {"name": "gone", "type": ["null", "boolean", "long"], "default": None},
    ],
}


class TestMaterializeCdc(CollectSuite, Reaching):
    type = "materialize_cdc"

    @pytest.fixture(autouse=True)
    def receiver(self) -> Iterator[Receiver]:
        async def take(_: web.Request) -> web.Response:
            return web.Response()

        with receiver_in_thread(take) as server:
            self.url = server.url
            yield server

    def connection(self) -> dict[str, Any]:
        return self.sending_to(self.url)

    def unreachable(self) -> dict[str, Any]:
        return self.sending_to("http://127.0.0.1:1")

    def sending_to(self, url: str) -> dict[str, Any]:
        transport = {"type": "http", "url": url}
        return {"reduce": "last_by_key", "avro_schema": SCHEMA, "transport": transport, "partitions": 4}

    def options(self) -> dict[str, Any]:
        return {"key": "{{id}}", "delete_when": "gone"}

    def test_deltas_say_how_many(self) -> None:
        collect = self.collect(reduce="deltas")
        for body in (b'{"record": {"id": 1}, "delta": 2}', b'{"record": {"id": "a"}, "delta": -1}'):
            self.keyless(collect).document(message(body))
        for body in (
            b'{"record": {"id": 1}, "delta": 0}',
            b'{"record": {"id": 1}, "delta": true}',
            b'{"record": {"id": 1}, "delta": 1.5}',
            b'{"record": {"id": {}}, "delta": 1}',
            b'{"record": {"id": 1}, "delta": 1, "more": 1}',
            b'{"id": 1}',
            b"[]",
        ):
            assert self.refused(self.keyless(collect), message(body)) == "unfit_value"

    @staticmethod
    def keyless(collect: Any) -> Any:
        """With a key that does not come from the body."""
        return type(collect)(collect.connection, collect.options_model.model_validate({"key": "{{$message.id}}"}))

    def test_the_schema_is_that_of_a_record(self) -> None:
        for schema in (
            {"type": "string"},
            {"type": "record", "name": "T", "fields": [{"name": "a", "type": "nonsense"}]},
        ):
            with pytest.raises(ValidationError) as error:
                MaterializeConnection.model_validate(self.connection() | {"avro_schema": schema})
            assert [e["loc"] for e in error.value.errors()] == [("avro_schema",)]
