"""The task of a stage as processes that can be killed: ``python -m tests.integration.task_process STAGE``.

Each line of its input, ``STOP_PORT [STEP]``, starts the task anew, in a fork, which has everything imported. With
a step it is killed once that step is done. Each line of its output is the exit status of one.
"""

import asyncio
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from backend.domain.stages import SYNDICATING
from backend.exports import stager
from backend.settings import Settings, platform_settings
from spark_jobs.jobs import exporter
from spark_jobs.streaming.stop_channel import StopChannel
from tests.integration import input_jobs
from tests.integration.delivery_jobs import BILLING, BillingJob, DeliveryJob
from tests.integration.input_jobs import InputJob


class TaskProcess:
    """One process of a stage's task after the other."""

    def __init__(self, stage: str, **environment: str) -> None:
        command = [sys.executable, "-m", "tests.integration.task_process", stage]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=os.environ | environment
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    async def ended(self) -> int:
        """The exit status of the one that was started."""
        return int(await asyncio.wait_for(asyncio.to_thread(self._output.readline), 120))

    async def killed_after(self, step: str) -> int:
        """Starts one, and returns the exit status with which it ends after that step."""
        channel = StopChannel("127.0.0.1", platform_settings().service_token)
        self._input.write(f"{channel.address[1]} {step}\n")
        try:
            return await self.ended()
        finally:
            channel.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        channel = StopChannel("127.0.0.1", platform_settings().service_token)
        self._input.write(f"{channel.address[1]}\n")
        try:
            yield
        finally:
            channel.stop()
            assert await self.ended() == 0

    def close(self) -> None:
        self._input.close()
        self._process.wait()
        self._output.close()


def _job(stage: str) -> Any:
    if stage in input_jobs.STAGES:
        return InputJob(stage)
    if stage == SYNDICATING.name:
        return DeliveryJob()
    return BillingJob() if stage == BILLING else importlib.import_module(f"spark_jobs.jobs.{stage}")


def _run(job: Any, port: int, fatal: str) -> None:
    def at(step: str) -> None:
        if step == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    job.run_slot(Settings(), ("127.0.0.1", port), 0, at)


def _main(stage: str) -> None:
    stager._OLDEST_SECONDS = 0.5
    exporter._CLAIM_SECONDS = exporter._CLEAN_SECONDS = 0.2
    exporter._RENEW_SECONDS = 0.5
    job = _job(stage)
    while line := sys.stdin.readline():
        port, *fatal = line.split()
        child = os.fork()
        if not child:
            _run(job, int(port), *fatal or [""])
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
