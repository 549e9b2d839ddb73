"""For the capability ``export``."""

import asyncio
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.domain import json
from backend.domain.capabilities import DeliveryError, Export
from backend.domain.connector import CheckFailedError, check_connection, connectors
from tests.integration.connectors.suites.common import Reaching, forbid_every_address, hides_secrets, opened
from tests.waiting import LIMIT_SECONDS


class Store(ABC):
    """A real server on which a connector stores files. ``connection`` leads to a place that is empty at first."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self.connection = connection

    @abstractmethod
    async def everything(self) -> dict[str, bytes]:
        """All that is visible there by name, unfinished files as well."""


class ExportSuite(Reaching):
    """For connectors with the capability ``export``."""

    login = "access"
    """The field of the connection that holds the login."""

    @abstractmethod
    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[Store]:
        """A server that works, or one that accepts connections and never answers."""
        yield Store({})  # type: ignore[abstract]

    @abstractmethod
    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        """The same with a wrong login; None where there is no login."""

    def export(self, store: Store, folder: str = "out") -> Export[Any, Any]:
        return exporter(self.type, store.connection, {"folder": folder})

    async def test_a_file_is_visible_once_it_is_committed_and_whole(self) -> None:
        async with self.store() as store, opened(self.export(store)) as export:
            first = bytes(range(256)) * (export.part_bytes // 256)
            upload = await export.begin("orders/São Paulo #1 'x' & +100%.csv")
            await export.write(upload, 1, first)
            await export.write(upload, 2, b"the end")
            assert "out/orders/São Paulo #1 'x' & +100%.csv" not in await store.everything()
            await export.commit(upload)
            assert await store.everything() == {"out/orders/São Paulo #1 'x' & +100%.csv": first + b"the end"}

    async def test_another_process_goes_on_with_an_upload_and_repeats_what_was_done(self) -> None:
        async with self.store() as store:
            async with opened(self.export(store)) as export:
                first = b"1" * export.part_bytes
                upload = await export.begin("a.csv")
                await export.write(upload, 1, first)
            upload = json.loads(json.dumps(upload))
            async with opened(self.export(store)) as export:
                await export.write(upload, 2, b"2")
                await export.write(upload, 1, first)
                await export.write(upload, 2, b"2")
                await export.commit(upload)
            async with opened(self.export(store)) as export:
                await export.commit(upload)
                await export.abort(upload)  # too late, and no harm to the file
            assert await store.everything() == {"out/a.csv": first + b"2"}

    async def test_an_aborted_upload_leaves_nothing_and_cannot_be_committed(self) -> None:
        async with self.store() as store:
            async with opened(self.export(store)) as export:
                upload = await export.begin("new/folder/a.csv")
                await export.write(upload, 1, b"1")
            upload = json.loads(json.dumps(upload))
            async with opened(self.export(store)) as export:
                await export.abort(upload)
                await export.abort(upload)
                assert await store.everything() == {}
                with pytest.raises(DeliveryError) as failed:
                    await export.commit(upload)
                assert failed.value.reason == "upload_gone"
                assert await store.everything() == {}

    async def test_a_file_may_be_empty_and_may_replace_another(self) -> None:
        async with self.store() as store, opened(self.export(store, "")) as export:
            upload = await export.begin("a.csv")
            await export.commit(upload)
            await export.commit(upload)
            assert await store.everything() == {"a.csv": b""}
            upload = await export.begin("a.csv")
            await export.write(upload, 1, b"new")
            assert (await store.everything())["a.csv"] == b""
            await export.commit(upload)
            assert await store.everything() == {"a.csv": b"new"}

    async def test_memory_does_not_grow_with_the_file(self) -> None:
        async with self.store() as store, opened(self.export(store)) as export:
            upload = await export.begin("large.bin")
            await export.write(upload, 1, bytes(export.part_bytes))
            tracemalloc.start()
            try:
                for number in range(2, 7):
                    await export.write(upload, number, bytes(export.part_bytes))
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            await export.commit(upload)
            assert peak < 4 * export.part_bytes
            assert len((await store.everything())["out/large.bin"]) == 6 * export.part_bytes

    @pytest.mark.parametrize("path", ["../a.csv", "a/../../b", "/etc/a", "a//b", "a/./b", "a\nb", "x" * 1000])
    async def test_a_path_that_leads_elsewhere_is_refused(self, path: str) -> None:
        async with self.store() as store, opened(self.export(store)) as export:
            with pytest.raises(DeliveryError) as failed:
                await export.begin(path)
            assert failed.value.reason == "configuration"
            assert await store.everything() == {}

    async def test_a_wrong_login_is_named_without_secrets(self) -> None:
        async with self.store() as store:
            connection = self.rejected(store.connection)
            if connection is None:
                return
            failure = await self.export_failure(connection)
            assert failure.reason == "configuration"
            assert hides_secrets(self.type, connection, str(failure))
            with pytest.raises(CheckFailedError) as failed:
                await self.checked(connection)
            assert failed.value.field == self.login

    async def test_a_store_that_cannot_be_reached_is_a_transient_fault_without_secrets(self) -> None:
        failure = await self.export_failure(self.unreachable())
        assert failure.retryable
        assert hides_secrets(self.type, self.unreachable(), str(failure))

    async def test_a_store_that_hangs_is_a_transient_fault(self) -> None:
        async with self.store(hangs=True) as store:
            failure = await self.export_failure(store.connection)
            assert failure.retryable

    async def test_a_store_at_a_forbidden_address_is_not_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.store() as store:
            forbid_every_address(monkeypatch)
            failure = await self.export_failure(store.connection)
            assert failure.reason == "forbidden"
            assert await store.everything() == {}

    async def test_a_connection_test_says_what_was_reached_or_which_field_is_to_blame(self) -> None:
        async with self.store() as store:
            await self.check_what_connection_tests_say(store.connection)

    async def checked(self, connection: dict[str, Any]) -> str:
        connector = connectors.get(self.type)
        return await check_connection(connector, connector.connection_model.model_validate(connection))

    async def export_failure(self, connection: dict[str, Any]) -> DeliveryError:
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(DeliveryError) as failed:
                async with opened(exporter(self.type, connection, {})) as export:
                    await export.begin("a.csv")
        return failed.value


def exporter(connector_type: str, connection: dict[str, Any], options: dict[str, Any]) -> Export[Any, Any]:
    connector = connectors.get(connector_type)
    kind = connector.capability(Export)
    assert kind is not None
    return kind(connector.connection_model.model_validate(connection), kind.options_model.model_validate(options))
