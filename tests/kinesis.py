"""Kinesis Mock, an emulator of Amazon Kinesis from npm. Unlike moto's, its shards end when they are split or merged."""

import signal
from typing import Any

import boto3

from tests.infra import VAR, Server
from tests.npm_programs import npm_program
from tests.ports import free_ports
from tests.waiting import answers, wait_until

PORT, _TLS_PORT = free_ports(2)
ENDPOINT = f"http://127.0.0.1:{PORT}"
ACCESS = {"type": "access_key", "access_key_id": "tests", "secret_access_key": "planted-secret-of-kinesis"}
_LOOPBACK = """
const { Server } = require("node:net");
const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...others) { return listen.call(this, port, "127.0.0.1", ...others); };
"""
"""The emulator has no setting for the address that it listens on."""


def kinesis_server() -> Server:
    """Not yet started."""
    script, path = npm_program("kinesis-local", "KINESIS_LOCAL_VERSION", "main.js")
    (VAR / "loopback.cjs").write_text(_LOOPBACK)
    settings = {
        "PATH": path,
        "KINESIS_MOCK_PLAIN_PORT": PORT,
        "KINESIS_MOCK_TLS_PORT": _TLS_PORT,
        "KINESIS_MOCK_CERT_PATH": script.with_name("server.json"),
        "SHARD_LIMIT": 1000,
        **dict.fromkeys(("CREATE_STREAM_DURATION", "SPLIT_SHARD_DURATION", "MERGE_SHARDS_DURATION"), "20ms"),
    }
    command = ["env", *(f"{name}={value}" for name, value in settings.items())]
    return Server(
        "kinesis",
        [*command, "node", "--require", str(VAR / "loopback.cjs"), str(script)],
        lambda: answers(f"{ENDPOINT}/healthcheck"),
        # Otherwise it waits for its clients' connections. It keeps nothing anyway.
        stop_signal=signal.SIGKILL,
    )


def connection(**fields: Any) -> dict[str, Any]:
    return {"region": "us-east-1", "endpoint": ENDPOINT, "access": ACCESS, **fields}


def client() -> Any:
    """The library's client."""
    return boto3.client(
        "kinesis",
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id=ACCESS["access_key_id"],
        aws_secret_access_key=ACCESS["secret_access_key"],
    )


def make_stream(name: str, shards: int) -> str:
    client().create_stream(StreamName=name, ShardCount=shards)
    wait_until_active(name)
    return name


def wait_until_active(name: str) -> None:
    kinesis = client()

    def is_active() -> bool:
        summary = kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
        return bool(summary["StreamStatus"] == "ACTIVE")

    wait_until(is_active)


def records_of(name: str) -> list[dict[str, Any]]:
    """Everything in the stream's shards."""
    kinesis = client()
    records: list[dict[str, Any]] = []
    for shard in kinesis.list_shards(StreamName=name)["Shards"]:
        start = {"StreamName": name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(**start)["ShardIterator"]
        while iterator:
            answer = kinesis.get_records(ShardIterator=iterator, Limit=1000)
            records += answer["Records"]
            iterator = answer.get("NextShardIterator") if answer["Records"] else None
    return records
