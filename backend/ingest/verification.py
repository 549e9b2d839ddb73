"""Requests that a connector verifies in place of an API key."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from threading import BoundedSemaphore
from typing import Any

from backend.domain.capabilities import DeliveryError, VerificationError, Verify
from backend.domain.connector import RuntimeConnector
from backend.domain.errors import error_trace
from backend.domain.idle_cache import IdleCache
from backend.domain.inputs.http import Verification
from backend.domain.masking import written_secrets
from backend.domain.pipeline import PipelineSnapshot
from backend.ingest.problems import Problem
from backend.ingest.requests import Headers, verification_of
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, UnknownPipelineError
from backend.network.threads import DaemonThreads

log = logging.getLogger(__name__)

_SECONDS = 5.0
_THREADS = 8
"""Most verifications of one pipeline in threads at the same time, those that hang included."""
_IDLE_SECONDS = 3600.0


class Verifier:
    """Verifies requests. Whatever a connector does affects only the requests to the pipelines that use it."""

    def __init__(self, config: ConfigClient) -> None:
        self._config = config
        self._threads = DaemonThreads()
        self._room: IdleCache[str, BoundedSemaphore] = IdleCache(_IDLE_SECONDS)

    async def verify(self, pipeline: PipelineSnapshot, headers: Headers, body: bytes) -> None:
        """Raises Problem 401 when the request does not prove where it comes from, 500 when the connector fails
        unexpectedly, 503 when that cannot be determined now."""
        try:
            runtime = await self._config.runtime(str(pipeline.id), pipeline.version)
        except (ConfigUnavailableError, UnknownPipelineError) as error:
            raise Problem(503, "Verification unavailable", f"{error} Send the request again.", retry_after=2) from None
        verification = verification_of(runtime.snapshot)
        assert verification is not None
        verifier: Verify[Any, Any] | None = None
        try:
            verifier = _bound(verification, runtime.connectors[verification.connector])
            given = {name.decode("latin-1"): [v.decode("latin-1") for v in values] for name, values in headers.items()}
            if verifier.computes_only:
                verifier.verify(given, body)
            else:
                await self._in_thread(str(pipeline.id), verifier, given, body)
        except VerificationError as error:
            raise Problem(401, "Not verified", str(error)) from None
        except Problem:
            raise
        except (Exception, SystemExit) as error:
            trace = error_trace(error, written_secrets(verifier.connection) if verifier is not None else ())
            log.error("The verification of pipeline %s failed unexpectedly.\n%s", pipeline.id, trace)
            text = "The pipeline's verification failed unexpectedly; its operator finds the cause in the server's log."
            raise Problem(500, "Verification failed", text) from None

    async def _in_thread(
        self, pipeline_id: str, verifier: Verify[Any, Any], headers: Mapping[str, Sequence[str]], body: bytes
    ) -> None:
        room = self._room.get(pipeline_id)
        if room is None:
            room = self._room[pipeline_id] = BoundedSemaphore(_THREADS)
        if not room.acquire(blocking=False):
            text = f"{_THREADS} requests of the pipeline are being verified already. Send the request again."
            raise Problem(503, "Verification busy", text, retry_after=2)

        def attempt() -> BaseException | None:
            # A future changes some exceptions that it is given, and refuses others.
            try:
                verifier.verify(headers, body)
            except BaseException as error:
                return error
            return None

        try:
            running = self._threads.submit(attempt)
        except RuntimeError:  # the system has no thread left
            room.release()
            raise
        # One that was given up occupies its place until it really ends.
        running.add_done_callback(lambda _: room.release())
        result = asyncio.wrap_future(running)
        done, _ = await asyncio.wait([result], timeout=_SECONDS)
        if not done:
            result.cancel()
            log.error("The verification of pipeline %s takes more than %g seconds.", pipeline_id, _SECONDS)
            text = f"The pipeline's verification did not end within {_SECONDS:g} seconds. Send the request again."
            raise Problem(503, "Verification unavailable", text, retry_after=60)
        if (error := result.result()) is not None:
            raise error


def _bound(verification: Verification, connector: RuntimeConnector) -> Verify[Any, Any]:
    """Raises Problem 503 when the pipeline's operator has to act first."""
    try:
        verifier: Verify[Any, Any] = verification.bind(connector)
    except DeliveryError as error:
        text = f"The pipeline's verification does not work: {error}"
        raise Problem(503, "Verification unavailable", text, retry_after=60) from None
    return verifier
