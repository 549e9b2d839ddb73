"""The connector for changes of PostgreSQL, against a real server with wal_level = logical."""

import asyncio
import json
import resource
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import psycopg
import pytest

from backend.connectors.parts.replication import lsn_number
from backend.domain.capabilities import Batch, DeliveryError, InputRecord, Register, RegistrationState
from backend.domain.connector import CheckFailedError, RuntimeConnector, check_connection, connectors
from backend.domain.uses import bind
from tests import infra
from tests.integration.connectors.suites import (
    ReadStreamSuite,
    Registering,
    RegisterSuite,
    Source,
    input_reader,
    opened,
)
from tests.logical_replication import CONNECTION, PASSWORD, PLAIN_PORT, PORT, configured_server, logical_server, url
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, wait_until


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[infra.Server]:
    running = logical_server()
    running.start()
    yield running
    running.stop()


def sql(statement: str, parameters: Sequence[Any] | None = None, *, port: int = PORT) -> list[tuple[Any, ...]]:
    """Runs a statement, or several without parameters as one transaction."""
    with psycopg.connect(url(port), autocommit=True) as database:
        cursor = database.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


class Database(Source):
    """Some tables, registered as a pipeline's publishing does."""

    def __init__(self, *tables: str, **options: Any) -> None:
        self.name = f"headrace_{uuid.uuid4().hex}"
        super().__init__(CONNECTION, {"tables": list(tables), "begin": "now", **options})

    def __repr__(self) -> str:
        return self.name

    async def register(self) -> None:
        self.registered = await registering(self, lambda register: register.register(self.name, self.registered))

    async def unregister(self) -> None:
        await registering(self, lambda register: register.unregister(self.name, self.registered))

    async def warning(self) -> str:
        state: RegistrationState = await registering(self, lambda register: register.state(self.name, self.registered))
        return state.warning

    async def write(self, bodies: Sequence[bytes]) -> None:
        with psycopg.connect(url()) as database:
            for body in bodies:
                database.execute(f"INSERT INTO {self.options['tables'][0]} (body) VALUES (%s)", [body.decode()])

    def reader(self) -> Any:
        reader = input_reader("postgres_cdc", self.connection, self.options, self.registered)
        reader.position = self.position
        return reader


async def registering(source: Database, call: Any) -> Any:
    runtime = RuntimeConnector(type="postgres_cdc", connection=source.connection)
    register = bind(runtime, source.options, lambda type: type.capability(Register), "")
    try:
        await register.open()
        return await call(register)
    finally:
        await register.close()


@asynccontextmanager
async def tables(*columns: str, **options: Any) -> AsyncIterator[Database]:
    """A table for each list of columns, published with the options."""
    names = [f"t_{uuid.uuid4().hex[:12]}" for _ in columns]
    for name, described in zip(names, columns, strict=True):
        sql(f"CREATE TABLE {name} ({described})")
    database = Database(*(f"public.{name}" for name in names), **options)
    await database.register()
    try:
        yield database
    finally:
        await asyncio.to_thread(wait_until, lambda: clean_up(database.name))
        for name in names:
            sql(f"DROP TABLE IF EXISTS {name}")


def clean_up(name: str) -> bool:
    """Removes what was made, once its reader has let go of it."""
    sql(f'DROP PUBLICATION IF EXISTS "{name}"')
    sql(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE %s AND NOT active",
        [f"{name}%"],
    )
    return not sql("SELECT 1 FROM pg_replication_slots WHERE slot_name LIKE %s", [f"{name}%"])


async def eventually(action: Any) -> None:
    """Until the slot's reader, which has just ended, has let go of it."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            try:
                return await action()
            except DeliveryError as error:
                if error.reason != "slot_in_use":
                    raise
            await asyncio.sleep(0.1)


async def read(database: Database, count: int, *, acknowledge: bool = True) -> list[InputRecord]:
    async with opened(database.reader()) as reader, aclosing(reader.stream()) as stream:
        return await more(stream, count, reader if acknowledge else None)


async def more(stream: AsyncIterator[Batch], count: int, reader: Any) -> list[InputRecord]:
    """That many records of a stream; with a reader, they are acknowledged."""
    records: list[InputRecord] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            batch = await anext(stream)
            records += batch.records
            if reader is not None:
                await reader.acknowledge(json.loads(json.dumps(batch.breakpoint)))
    return records


def documents(records: Sequence[InputRecord]) -> list[dict[str, Any]]:
    return [json.loads(record.body) for record in records]


def changed(records: Sequence[InputRecord]) -> list[tuple[str, Any, Any]]:
    return [(document["op"], document["before"], document["after"]) for document in documents(records)]


class TestRead(ReadStreamSuite):
    type = "postgres_cdc"

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        async with tables("id bigserial PRIMARY KEY, body text") as database:
            if not hangs:
                yield database
                return
            server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
            async with server:
                database.connection = CONNECTION | {"port": server.sockets[0].getsockname()[1]}
                yield database
                database.connection = CONNECTION

    def unreachable(self) -> dict[str, Any]:
        return CONNECTION | {"port": free_ports(1)[0]}

    def body(self, record: InputRecord) -> bytes:
        text: str = json.loads(record.body)["after"]["body"]
        return text.encode()


class Slots(Registering):
    """The slots and the publication of a table's registration."""

    async def present(self) -> set[str]:
        slots = sql("SELECT slot_name::text FROM pg_replication_slots WHERE slot_name LIKE %s", [f"{self.name}%"])
        publications = sql("SELECT pubname::text FROM pg_publication WHERE pubname LIKE %s", [f"{self.name}%"])
        return {f"slot {name}" for (name,) in slots} | {f"publication {name}" for (name,) in publications}


class TestRegister(RegisterSuite):
    type = "postgres_cdc"

    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Registering]:
        table = f"t_{uuid.uuid4().hex[:12]}"
        sql(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        slots = Slots(CONNECTION, {"tables": [f"public.{table}"], "begin": "snapshot"})
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with server:
            if hangs:
                slots.connection = CONNECTION | {"port": server.sockets[0].getsockname()[1]}
            yield slots
        clean_up(slots.name)
        sql(f"DROP TABLE {table}")

    def unreachable(self) -> dict[str, Any]:
        return CONNECTION | {"port": free_ports(1)[0]}


async def test_changes_of_two_tables_come_in_the_order_of_their_transactions() -> None:
    columns = "id int PRIMARY KEY, v text"
    async with tables(columns, columns) as database:
        first, second = database.options["tables"]
        sql(f"INSERT INTO {first} VALUES (1, 'a'); INSERT INTO {second} VALUES (1, 'b'); UPDATE {first} SET v = 'c'")
        sql(f"DELETE FROM {second}")
        with psycopg.connect(url()) as late, psycopg.connect(url(), autocommit=True) as early:
            late.execute(f"INSERT INTO {first} VALUES (2, 'begun first, committed last')")
            early.execute(f"INSERT INTO {second} VALUES (2, NULL)")
        sql(f"TRUNCATE {first}, {second}")
        records = await read(database, 8)
        assert changed(records) == [
            ("insert", None, {"id": 1, "v": "a"}),
            ("insert", None, {"id": 1, "v": "b"}),
            ("update", None, {"id": 1, "v": "c"}),
            ("delete", {"id": 1}, None),
            ("insert", None, {"id": 2, "v": None}),
            ("insert", None, {"id": 2, "v": "begun first, committed last"}),
            ("truncate", None, None),
            ("truncate", None, None),
        ]
        one = documents(records)[0]
        assert (one["schema"], f"public.{one['table']}") == ("public", first)
        assert list(one) == ["op", "schema", "table", "before", "after", "lsn", "ts", "xid"]
        assert [record.key for record in records] == [b"1", b"1", b"1", b"1", b"2", b"2", None, None]
        assert len({document["xid"] for document in documents(records[:3])}) == 1
        assert one["ts"].endswith("+00:00")


async def test_an_update_of_a_key_is_a_delete_and_an_insert() -> None:
    async with tables("a int, b text, v int, PRIMARY KEY (a, b)") as database:
        (table,) = database.options["tables"]
        sql(f"INSERT INTO {table} VALUES (1, 'x', 10)")
        sql(f"UPDATE {table} SET b = 'y', v = 11")
        sql(f"UPDATE {table} SET v = 12")
        records = await read(database, 4)
        assert changed(records)[1:] == [
            ("delete", {"a": 1, "b": "x"}, None),
            ("insert", None, {"a": 1, "b": "y", "v": 11}),
            ("update", None, {"a": 1, "b": "y", "v": 12}),
        ]
        assert [record.key for record in records] == [b'["1","x"]', b'["1","x"]', b'["1","y"]', b'["1","y"]']


async def test_a_full_replica_identity_gives_the_whole_former_row() -> None:
    async with tables("id int PRIMARY KEY, v text, large text") as database:
        (table,) = database.options["tables"]
        sql(f"ALTER TABLE {table} REPLICA IDENTITY FULL; ALTER TABLE {table} ALTER large SET STORAGE EXTERNAL")
        sql(f"INSERT INTO {table} VALUES (1, 'a', repeat('x', 5000))")
        sql(f"UPDATE {table} SET v = 'b'")
        sql(f"DELETE FROM {table}")
        large = "x" * 5000
        assert changed(await read(database, 3))[1:] == [
            ("update", {"id": 1, "v": "a", "large": large}, {"id": 1, "v": "b", "large": large}),
            ("delete", {"id": 1, "v": "b", "large": large}, None),
        ]


async def test_a_large_value_that_was_not_changed_is_marked() -> None:
    async with tables("id int PRIMARY KEY, v text, large text") as database:
        (table,) = database.options["tables"]
        sql(f"ALTER TABLE {table} ALTER large SET STORAGE EXTERNAL")
        sql(f"INSERT INTO {table} VALUES (1, 'a', repeat('x', 5000))")
        sql(f"UPDATE {table} SET v = 'b'")
        _, update = documents(await read(database, 2))
        assert (update["after"], update["unchanged"]) == ({"id": 1, "v": "b"}, ["large"])


TYPES = """id int PRIMARY KEY, flag boolean, big bigint, amount numeric, share double precision, at timestamptz,
    local timestamp, day date, document jsonb, numbers int[], words text[], bytes bytea, code uuid, kind mood,
    price money_amount, kinds mood[]"""
VALUES = """(1, true, 9223372036854775807, 12345678901234567890.123456789, 1e300, '2026-10-25 02:30:00.123456+02',
    '2026-10-25 02:30', '2026-02-28', '{"a": [1, {"b": null}]}', '{1,NULL,3}', '{"a,b","c\\"d"}', '\\x00ff',
    '0199d1a0-0000-7000-8000-000000000000', 'sad', 1.50, '{sad,glad}')"""


@pytest.mark.parametrize("begin", ["now", "snapshot"])
async def test_values_of_all_kinds_are_the_same_in_changes_and_in_the_snapshot(begin: str) -> None:
    sql("DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('sad', 'glad')")
    sql("DROP DOMAIN IF EXISTS money_amount CASCADE; CREATE DOMAIN money_amount AS numeric CHECK (VALUE > 0)")
    async with tables(TYPES, begin=begin) as database:
        sql(f"INSERT INTO {database.options['tables'][0]} VALUES {VALUES}")
        (record,) = await read(database, 1)
        assert b"12345678901234567890.123456789" in record.body
        assert documents([record])[0]["after"] == {
            "id": 1,
            "flag": True,
            "big": 2**63 - 1,
            "amount": 12345678901234567890.123456789,
            "share": 1e300,
            "at": "2026-10-25T00:30:00.123456+00:00",
            "local": "2026-10-25T02:30:00",
            "day": "2026-02-28",
            "document": {"a": [1, {"b": None}]},
            "numbers": [1, None, 3],
            "words": ["a,b", 'c"d'],
            "bytes": "\\x00ff",
            "code": "0199d1a0-0000-7000-8000-000000000000",
            "kind": "sad",
            "price": 1.5,
            "kinds": ["sad", "glad"],
        }


async def test_a_change_of_the_table_is_followed() -> None:
    async with tables("id int PRIMARY KEY, v text") as database:
        (table,) = database.options["tables"]
        async with opened(database.reader()) as reader, aclosing(reader.stream()) as stream:
            sql(f"INSERT INTO {table} VALUES (1, 'a')")
            records = await more(stream, 1, reader)
            sql(f"ALTER TABLE {table} ADD COLUMN n int DEFAULT 7; ALTER TABLE {table} RENAME v TO text")
            sql(f"INSERT INTO {table} VALUES (2, 'b', 8)")
            records += await more(stream, 1, reader)
            sql(f"ALTER TABLE {table} DROP COLUMN text; ALTER TABLE {table} ALTER n TYPE text")
            sql(f"INSERT INTO {table} VALUES (3, 'nine')")
            records += await more(stream, 1, reader)
        assert [after for _, _, after in changed(records)] == [
            {"id": 1, "v": "a"},
            {"id": 2, "text": "b", "n": 8},
            {"id": 3, "n": "nine"},
        ]


async def test_what_is_read_again_has_the_same_identities() -> None:
    async with tables("id int PRIMARY KEY") as database:
        (table,) = database.options["tables"]
        sql(f"INSERT INTO {table} SELECT generate_series(1, 1200)")
        sql(f"INSERT INTO {table} SELECT generate_series(1201, 1300)")
        first = await read(database, 1200, acknowledge=False)
        again = await read(database, 1300)
        identities = [record.identity for record in again]
        assert len(set(identities)) == 1300
        assert [record.identity for record in first] == identities[: len(first)]


async def test_a_part_of_a_transaction_confirms_nothing() -> None:
    async with tables("id int PRIMARY KEY") as database:
        (table,) = database.options["tables"]
        sql(f"INSERT INTO {table} SELECT generate_series(1, 1200)")
        async with opened(database.reader()) as reader, aclosing(reader.stream()) as stream:
            assert len(await more(stream, 500, reader)) == 500
        assert len(await read(database, 1200)) == 1200


async def test_a_large_transaction_is_read_with_bounded_memory() -> None:
    async with tables("id int PRIMARY KEY, v text") as database:
        (table,) = database.options["tables"]
        sql(f"INSERT INTO {table} SELECT n, repeat(md5(n::text), 300) FROM generate_series(1, 10000) AS n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = 0
        async with opened(database.reader()) as reader, aclosing(reader.stream()) as stream:
            async with asyncio.timeout(60):
                while count < 10_000:
                    batch = await anext(stream)
                    count += len(batch.records)
                    await reader.acknowledge(batch.breakpoint)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 48 * 1024, f"{grown} kB for 96 MB"


def confirmed(database: Database) -> int:
    ((lsn,),) = sql(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", [database.registered["slot"]]
    )
    return lsn_number(lsn)


async def test_the_slot_advances_while_only_other_tables_change() -> None:
    async with tables("id int PRIMARY KEY") as database:
        sql("CREATE TABLE IF NOT EXISTS other (id bigserial, v text)")
        async with opened(database.reader()) as reader, aclosing(reader.stream()) as stream:
            reading = asyncio.ensure_future(anext(stream))
            sql("INSERT INTO other (v) SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
            ((present,),) = sql("SELECT pg_current_wal_lsn()::text")
            await asyncio.to_thread(wait_until, lambda: confirmed(database) >= lsn_number(present))
            (table,) = database.options["tables"]
            sql(f"INSERT INTO {table} VALUES (1)")
            assert len((await reading).records) == 1
            at = confirmed(database)
            sql("INSERT INTO other (v) SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.wait([waiting], timeout=2)
            assert confirmed(database) == at  # what was not acknowledged is kept
            waiting.cancel()
            await asyncio.wait([waiting])


async def test_rows_and_the_changes_after_them_are_each_read_once() -> None:
    columns = "id int PRIMARY KEY, v int"
    async with tables(columns, columns, begin="snapshot") as database:
        first, second = database.options["tables"]
        sql(f"INSERT INTO {first} SELECT n, 0 FROM generate_series(1, 1500) AS n; INSERT INTO {second} VALUES (1, 0)")
        stop = asyncio.Event()

        async def keep_changing() -> int:
            count = 0
            async with await psycopg.AsyncConnection.connect(url(), autocommit=True) as writer:
                while not stop.is_set():
                    count += 1
                    await writer.execute(f"INSERT INTO {first} VALUES ({10_000 + count}, {count})".encode())
                    await writer.execute(f"UPDATE {second} SET v = {count}".encode())
            return count

        writing = asyncio.create_task(keep_changing())
        async with opened(database.reader()) as reader, aclosing(reader.stream()) as stream:
            records = await more(stream, 1501, reader)
            stop.set()
            last = await writing
            async with asyncio.timeout(60):
                while not any(document["after"] == {"id": 1, "v": last} for document in documents(records[-1:])):
                    records += await more(stream, 1, reader)
        added = [d["after"]["id"] for d in documents(records) if d["table"] in first and d["after"]["id"] > 10_000]
        assert added == list(range(10_001, 10_001 + last))
        values = [d["after"]["v"] for d in documents(records) if d["table"] in second]
        assert values == list(range(values[0], last + 1))
        assert {d["op"] for d in documents(records)} == {"snapshot", "insert", "update"}
        assert len({record.identity for record in records}) == len(records)
        sql(f"INSERT INTO {second} VALUES (2, 0)")
        assert changed(await read(database, 1)) == [("insert", None, {"id": 2, "v": 0})]  # no second snapshot


async def test_an_interrupted_snapshot_continues_and_misses_no_deletion() -> None:
    async with tables("id int, name text, v text, PRIMARY KEY (name, id)", begin="snapshot") as database:
        (table,) = database.options["tables"]
        sql(f"INSERT INTO {table} SELECT n, %s, 'é' FROM generate_series(1, 1200) AS n", ["O'Neil \\ 5 %"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.connectors.reader_process"),
            json.dumps(
                {
                    "type": "postgres_cdc",
                    "connection": CONNECTION,
                    "options": database.options,
                    "registered": database.registered,
                }
            ),
            stdout=asyncio.subprocess.PIPE,
            limit=16 * 1024 * 1024,
        )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            first = json.loads(await process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        await process.wait()
        stored = len(first["bodies"])
        assert 2 < stored < 600
        sql(f"DELETE FROM {table} WHERE id IN (1, 1000)")
        sql(f"UPDATE {table} SET v = 'ü' WHERE id IN (2, 1100)")
        changes = ["delete", "delete", "update", "update"]
        # Without knowing how far it came, everything is read again.
        for position, read_before in ((first["breakpoint"], stored), (None, 0)):
            database.position = position
            expected = [number for number in range(read_before + 1, 1201) if number not in (1, 1000)]
            records = await read(database, len(expected) + len(changes), acknowledge=False)
            rows = {d["after"]["id"]: d["after"]["v"] for d in documents(records) if d["op"] == "snapshot"}
            assert list(rows) == expected
            assert rows[1100] == "ü"
            assert [change[0] for change in changed(records)[len(expected) :]] == changes


async def test_a_table_without_rows_or_with_a_new_version_of_the_options() -> None:
    async with tables("id int PRIMARY KEY", "id int PRIMARY KEY", begin="snapshot") as database:
        first, second = database.options["tables"]
        database.options["tables"] = [first]
        await database.register()
        sql(f"INSERT INTO {second} VALUES (0)")
        async with opened(database.reader()) as reader, aclosing(reader.stream()) as stream:
            sql(f"INSERT INTO {first} VALUES (1)")
            # The snapshot is taken when reading begins.
            assert [op for op, *_ in changed(await more(stream, 1, reader))] == ["snapshot"]
            assert not sql("SELECT 1 FROM pg_replication_slots WHERE temporary"), "it would keep the log"
            database.options["tables"] = [first, second]
            before = database.registered
            reading = asyncio.ensure_future(more(stream, 1, reader))
            await database.register()
            assert database.registered == before
            sql(f"INSERT INTO {second} VALUES (2)")
            assert changed(await reading) == [("insert", None, {"id": 2})]


async def test_what_was_made_is_removed_and_nothing_else() -> None:
    def slots() -> set[str]:
        return {name for (name,) in sql("SELECT slot_name::text FROM pg_replication_slots")}

    def publications() -> set[str]:
        return {name for (name,) in sql("SELECT pubname::text FROM pg_publication")}

    before = slots(), publications()
    async with tables("id int PRIMARY KEY", begin="snapshot") as database:
        await database.register()  # as after a crash
        database.registered = {}
        await database.register()
        assert slots() - before[0] == {database.name, f"{database.name}_snapshot"}
        database.registered = {}  # a crash before that was stored
        await database.unregister()
        assert (slots(), publications()) == before
    sql("CREATE TABLE mine (id int PRIMARY KEY); CREATE PUBLICATION my_publication FOR TABLE mine")
    sql("SELECT pg_create_logical_replication_slot('my_slot', 'pgoutput')")
    database = Database(slot="my_slot", publication="my_publication")
    await database.register()
    sql("INSERT INTO mine VALUES (1)")
    assert changed(await read(database, 1)) == [("insert", None, {"id": 1})]
    await eventually(database.unregister)
    assert (slots() - before[0], publications() - before[1]) == ({"my_slot"}, {"my_publication"})
    sql("SELECT pg_drop_replication_slot('my_slot')")
    sql("DROP PUBLICATION my_publication; DROP TABLE mine")


async def refused(database: Database) -> DeliveryError:
    with pytest.raises(DeliveryError) as failed:
        await database.register()
    assert PASSWORD not in str(failed.value)
    return failed.value


async def test_faults_of_the_options_are_said_at_their_fields() -> None:
    missing = await refused(Database("public.missing"))
    assert (missing.option, "no table public.missing" in str(missing)) == ("tables", True)
    sql("CREATE TABLE keyless (id int)")
    keyless = await refused(Database("public.keyless"))
    assert (keyless.option, "REPLICA IDENTITY FULL" in str(keyless)) == ("tables", True)
    sql("DROP TABLE keyless")
    assert (await refused(Database(publication="nowhere"))).option == "publication"
    sql("CREATE TABLE IF NOT EXISTS keyed (id int PRIMARY KEY)")
    database = Database("keyed", slot="nowhere")
    assert (await refused(database)).option == "slot"
    await database.unregister()


async def test_a_user_without_the_right_to_replicate() -> None:
    sql("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN PASSWORD 'plain-password'")
    connection = CONNECTION | {"user": "plain", "password": "plain-password"}
    sql("CREATE TABLE IF NOT EXISTS keyed (id int PRIMARY KEY)")
    sql("DROP PUBLICATION IF EXISTS for_plain; CREATE PUBLICATION for_plain FOR TABLE keyed")
    database = Database("keyed", publication="for_plain")
    database.connection = connection
    assert "ALTER ROLE plain REPLICATION" in str(await refused(database))
    database = Database("keyed")
    database.connection = connection
    assert (await refused(database)).option == "publication"
    with pytest.raises(CheckFailedError) as failed:
        await _check(connection)
    assert failed.value.field == "user"
    sql("DROP PUBLICATION for_plain")


async def _check(connection: dict[str, Any]) -> str:
    connector = connectors.get("postgres_cdc")
    return await check_connection(connector, connector.connection_model.model_validate(connection))


async def test_a_connection_test_says_what_was_reached_or_which_field_is_to_blame() -> None:
    assert (await _check(CONNECTION)).startswith("Connected to PostgreSQL")
    for change, field in (
        ({"password": "wrong"}, "password"),
        ({"database": "nowhere"}, "database"),
        ({"port": free_ports(1)[0]}, "host"),
    ):
        with pytest.raises(CheckFailedError) as failed:
            await _check(CONNECTION | change)
        assert failed.value.field == field


async def test_a_server_without_logical_replication() -> None:
    plain = configured_server("postgres-plain", PLAIN_PORT)
    plain.start()
    try:
        with pytest.raises(CheckFailedError, match="wal_level is replica"):
            await _check(CONNECTION | {"port": PLAIN_PORT})
        database = Database("pg_class")
        database.connection = CONNECTION | {"port": PLAIN_PORT}
        assert "wal_level = replica" in str(await refused(database))
    finally:
        plain.stop()


async def test_a_slot_that_another_reader_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    from backend.connectors.parts import replication

    monkeypatch.setattr(replication, "_IN_USE_SECONDS", 0.5)
    async with (
        tables("id int PRIMARY KEY") as database,
        opened(database.reader()) as reader,
        aclosing(reader.stream()) as stream,
    ):
        sql(f"INSERT INTO {database.options['tables'][0]} VALUES (1)")
        await more(stream, 1, None)
        with pytest.raises(DeliveryError) as failed:
            await read(database, 1)
        assert (failed.value.reason, failed.value.retryable) == ("slot_in_use", True)
        with pytest.raises(DeliveryError, match="Another reader"):
            await database.unregister()


async def test_retained_log_is_warned_of_and_a_lost_slot_is_made_again() -> None:
    async with tables("id int PRIMARY KEY", begin="snapshot", retained_megabytes=4) as database:
        (table,) = database.options["tables"]
        await read(database, 0)
        assert await database.warning() == ""

        def fill_segment() -> None:
            sql("SELECT pg_logical_emit_message(false, 'fill', 'x')")
            sql("SELECT pg_switch_wal()")

        for _ in range(2):
            fill_segment()
        assert "for the slot" in await database.warning()
        assert "Nothing reads it at present." in await database.warning()
        for _ in range(2):
            fill_segment()
        assert "which is lost at 64 MB" in await database.warning()
        for _ in range(20):
            fill_segment()
            sql("CHECKPOINT")
            if "publish the pipeline again" in await database.warning():
                break
        assert "publish the pipeline again" in await database.warning()
        with pytest.raises(DeliveryError, match=r"is lost.*publish the pipeline again"):
            await read(database, 1)
        sql(f"INSERT INTO {table} VALUES (1)")
        await database.register()
        assert await database.warning() == ""
        assert [op for op, *_ in changed(await read(database, 1))] == ["snapshot"]
        sql("SELECT pg_drop_replication_slot(%s)", [database.name])
        assert "was removed" in await database.warning()
        with pytest.raises(DeliveryError, match="publish the pipeline again"):
            await read(database, 1)


async def test_an_input_that_was_not_registered_is_not_read() -> None:
    with pytest.raises(DeliveryError, match="publish the pipeline again"):
        await read(Database("t"), 1)
