"""The task that delivers and the worker that bills as jobs that name the steps that are done, so that a test can kill
them after each."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import django
from confluent_kafka import Message, Producer

from backend.settings import Settings
from spark_jobs.jobs import syndicating
from spark_jobs.streaming import lane_task, transaction
from spark_jobs.streaming.stop_channel import Address, watched

At = Callable[[str], None]

BILLING = "billing"
"""The name of the job that bills, which is no stage."""


class DeliveryJob:
    """The task of the lane that delivers."""

    def run_slot(self, environment: Settings, stop_address: Address, slot: int, at: At) -> None:
        """``begun`` is a transaction, ``results_sent`` what was made of its messages, ``offsets_sent`` how far they
        reach; ``delivered`` is the transaction, which is committed."""

        class Told(Producer):
            def begin_transaction(self) -> None:
                super().begin_transaction()
                at("begun")

            def send_offsets_to_transaction(self, *arguments: Any) -> None:
                at("results_sent")
                super().send_offsets_to_transaction(*arguments)
                at("offsets_sent")

            def commit_transaction(self, *arguments: Any) -> None:
                super().commit_transaction(*arguments)
                at("delivered")

        transaction.Producer = Told  # type: ignore[attr-defined,misc]
        lane_task.run_slot(syndicating.LANE, environment, stop_address, slot, slots=1)


class BillingJob:
    """The console's worker that bills."""

    def run_slot(self, environment: Settings, stop_address: Address, slot: int, at: At) -> None:
        """``billing_read`` are events of deliveries, ``billed`` is what the database's transaction has and has not
        committed, ``billing_committed`` what it has."""
        django.setup()
        from backend.apps.kafka_sink import sink
        from backend.apps.usage.sinks import UsageSink

        class Told(UsageSink):
            def write(self, records: Sequence[Message]) -> None:
                at("billing_read")
                super().write(records)
                at("billed")

        write = sink._write

        def written(*arguments: Any) -> None:
            write(*arguments)
            at("billing_committed")

        sink._write = written  # type: ignore[assignment]
        stop = threading.Event()

        async def run() -> None:
            stopped = await watched(stop_address, environment.service_token, slot)
            working = asyncio.create_task(asyncio.to_thread(sink.run, Told(), stop))
            await asyncio.wait([stopped, working], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await working

        asyncio.run(run())
