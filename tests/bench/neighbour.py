"""Latency of two lanes, Kafka to Kafka, alone and while another pipeline's external API hangs."""

import asyncio
import socket
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from backend.domain import routing
from backend.domain.message import Message, new_message_id, utc_now
from tests.installation import Installation

WARM_UP_SECONDS = 180
"""Long enough for the JVM to compile what Spark runs at the end of a batch, every 30 s."""
SECONDS = 60
RATE = 200
"""Messages per second in each of the two lanes; the pipeline whose API hangs gets a quarter of it."""

_PAUSE = 1 / RATE


@dataclass
class Latency:
    """The latency of one lane, in milliseconds from one topic to the next."""

    lane: str
    beside: str
    p50: float
    p99: float
    messages: int


def hanging_api() -> tuple[socket.socket, str]:
    """Accepts connections and never answers."""
    server = socket.create_server(("127.0.0.1", 0), backlog=1024)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        await (await loop.create_server(asyncio.Protocol, sock=server)).serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    return server, f"http://127.0.0.1:{server.getsockname()[1]}/"


def measure(installation: Installation, steps: list[dict[str, Any]], body: bytes) -> list[Latency]:
    """Runs only the adapting stages and reads their results from ``firehose_adapted``."""
    _, url = hanging_api()
    connector = installation.create("connectors/", {"name": "Hanging API", "type": "http", "connection": {"url": url}})
    call = {
        "type": "call",
        "connector": connector["id"],
        "to": "answer",
        "timeout_seconds": 60,
        "breaker": {"errors": 1000},
    }
    plain = installation.publish_pipeline("Untransformed", "http://127.0.0.1:9/")
    stepped = installation.publish_pipeline("Transformed", "http://127.0.0.1:9/", transforms=steps)
    hangs = installation.publish_pipeline("Hangs", "http://127.0.0.1:9/", transforms=[call])
    lanes = {plain: routing.INPUT, stepped: routing.TRANSFORMER}
    names = {plain: "untransformed", stepped: "transformed, five steps"}
    latencies = []
    for beside, neighbours in (("nothing", []), ("a hanging API", [hangs])):
        times_by_pipeline: dict[str, list[float]] = {pipeline: [] for pipeline in lanes}
        stop = threading.Event()
        reader = threading.Thread(target=_read, args=(installation, times_by_pipeline, stop))
        reader.start()
        _send(installation, lanes, neighbours, body)
        time.sleep(1)
        stop.set()
        reader.join()
        latencies += [_latency(names[pipeline], beside, times) for pipeline, times in times_by_pipeline.items()]
    return latencies


def _send(installation: Installation, lanes: dict[str, str], hang: list[str], body: bytes) -> None:
    producer = Producer({"bootstrap.servers": installation.endpoint("kafka"), "linger.ms": 0})
    due = time.perf_counter()
    end = due + WARM_UP_SECONDS + SECONDS
    for n in range(int((WARM_UP_SECONDS + SECONDS) * RATE)):
        everything = [*lanes.items(), *((pipeline, routing.TRANSFORMER) for pipeline in hang if n % 4 == 0)]
        for pipeline, topic in everything:
            message = Message(
                new_message_id(), pipeline, 1, b"", body, "application/json", utc_now(), (routing.ADAPTED,)
            )
            extra = [("sent", repr(time.time()).encode()), ("counts", b"1" if _counts(due, end) else b"")]
            producer.produce(topic, body, str(n).encode(), headers=[*message.headers(), *extra])
        producer.poll(0)
        due += _PAUSE
        time.sleep(max(0.0, due - time.perf_counter()))
    producer.flush(10)


def _counts(due: float, end: float) -> bool:
    return due > end - SECONDS


def _read(installation: Installation, times_by_pipeline: dict[str, list[float]], stop: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": installation.endpoint("kafka"),
            "group.id": "bench",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
            "auto.offset.reset": "latest",
        }
    )
    parts = consumer.list_topics(routing.ADAPTED, timeout=10).topics[routing.ADAPTED].partitions
    high = [consumer.get_watermark_offsets(TopicPartition(routing.ADAPTED, part))[1] for part in parts]
    consumer.assign([TopicPartition(routing.ADAPTED, part, at) for part, at in zip(parts, high, strict=True)])
    while not stop.is_set():
        record = consumer.poll(0.1)
        if record is None or record.error():
            continue
        headers: dict[str, bytes] = dict(record.headers() or [])  # type: ignore[arg-type]
        times = times_by_pipeline.get(headers["pipeline"].decode())
        if times is not None and headers.get("counts"):
            times.append((time.time() - float(headers["sent"])) * 1000)
    consumer.close()


def _latency(lane: str, beside: str, times: list[float]) -> Latency:
    cuts = statistics.quantiles(times, n=100)
    print(lane, "beside", beside, f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, {len(times)} messages", flush=True)
    return Latency(lane, beside, cuts[49], cuts[98], len(times))
