"""Notifies people about alerts: by a connector of the workspace, and by e-mail.

What is to be sent is kept on the alert until it is sent, so that neither a failure nor a crash loses it: it is sent
again, after pauses that grow, for a day. It may arrive twice if a crash comes before the success is recorded; both
carry the same message id. All workspaces' receivers are served at the same time and for a limited time, so that none
delays another's.
"""

import asyncio
import contextlib
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid5

from django.core.mail import send_mail

from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.manager.threads import in_thread
from backend.apps.monitoring.models import Alert
from backend.delivery.client import DeliveryClient
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, utc_now
from backend.domain.pipeline import OutputConfig, RuntimeOutput

log = logging.getLogger(__name__)

_SEND_SECONDS = 10.0
_ALL_SECONDS = 15.0
"""The time for all notifications together."""
_CLOSE_SECONDS = 2.0
_AT_ONCE = 20
"""How many notifications are sent to one receiver, or by e-mail, at the same time."""
_NOT_IN_TIME = "no answer in time."
_MOST = 1000
"""Alerts whose notifications are sent in one round."""
_FIRST_PAUSE = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(hours=1)
_KEPT = timedelta(days=1)
"""How long a notification is retried."""


@dataclass(frozen=True, eq=False)
class Notification:
    """``state`` is "firing" or "resolved", ``receiver`` "connector" or "email"."""

    alert: Alert
    state: str
    receiver: str


def notifications_send() -> None:
    """Sends what is due. Failures are recorded on their alerts and not raised."""
    alerts = Alert.objects.filter(send_at__lte=datetime.now(UTC), rule__enabled=True)
    due = list(alerts.select_related("rule__workspace", "rule__connector").order_by("send_at")[:_MOST])
    if not due:
        return
    notifications = [notification for alert in due for notification in _next_of(alert)]
    problems = asyncio.run(_send_all(notifications))
    for alert in due:
        own = [notification for notification in notifications if notification.alert is alert]
        _record(alert, own, {each: problems[each] for each in own if each in problems})


def _next_of(alert: Alert) -> Iterator[Notification]:
    """The first for each receiver, so that "firing" arrives before "resolved"."""
    receivers: set[str] = set()
    for state, receiver in alert.unsent:
        is_there = alert.rule.connector is not None if receiver == "connector" else bool(alert.rule.email)
        if receiver not in receivers and is_there:
            receivers.add(receiver)
            yield Notification(alert, state, receiver)


def _record(alert: Alert, tried: Sequence[Notification], problems: Mapping[Notification, str]) -> None:
    """What is left to be sent. Receivers that the rule no longer has, and what was retried for a day, are left out."""
    now = datetime.now(UTC)
    receivers = {each.receiver for each in tried}
    sent = [[each.state, each.receiver] for each in tried if each not in problems]
    began = {"firing": alert.started_at, "resolved": alert.ended_at or now}
    left = [
        [state, receiver]
        for state, receiver in alert.unsent
        if [state, receiver] not in sent and receiver in receivers and now - began[state] < _KEPT
    ]
    pause = min(_FIRST_PAUSE * 2 ** min(alert.tries, 10), _LONGEST_PAUSE) if problems else timedelta()
    # The rule may have been deleted meanwhile, and the alert with it.
    Alert.objects.filter(pk=alert.pk).update(
        unsent=left,
        tries=alert.tries + 1 if problems else 0,
        send_at=now + pause if left else None,
        notification="\n".join(problems.values()),
    )


def alert_output(connector: Connector) -> OutputConfig:
    """How alerts use a connector."""
    return OutputConfig(name="alerts", connector=connector.pk, timeout_seconds=_SEND_SECONDS)


class _Sending:
    """The notifications of one receiver. ``problems`` has a text for each that is not sent."""

    def __init__(self, receiver: str, notifications: Sequence[Notification]) -> None:
        self._receiver = receiver
        self.notifications = notifications
        self.problems = dict.fromkeys(notifications, f"{receiver}: {_NOT_IN_TIME}")
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def one(self, notification: Notification, send: Callable[[Notification], Awaitable[Any]]) -> None:
        async with self._slots:
            try:
                await send(notification)
            except (DeliveryError, OSError) as error:
                self.fail(notification, error)
            except Exception as error:
                log.exception("A notification could not be sent.")
                self.fail(notification, f"{type(error).__name__}: {error}")
            else:
                del self.problems[notification]

    async def all(self, send: Callable[[Notification], Awaitable[Any]]) -> None:
        await asyncio.gather(*(self.one(each, send) for each in self.notifications))

    def fail(self, notification: Notification, why: object) -> None:
        self.problems[notification] = f"{self._receiver}: {why or _NOT_IN_TIME}"


async def _send_all(notifications: Sequence[Notification]) -> dict[Notification, str]:
    """What went wrong with each that could not be sent."""
    by_connector: dict[Connector, list[Notification]] = defaultdict(list)
    for one in notifications:
        if one.receiver == "connector" and one.alert.rule.connector is not None:
            by_connector[one.alert.rule.connector].append(one)
    mails = _Sending("E-mail", [one for one in notifications if one.receiver == "email"])
    receivers = {connector: _Sending(connector.name, its) for connector, its in by_connector.items()}
    work = [_by_connector(connector, sending) for connector, sending in receivers.items()]
    await asyncio.gather(_by_mail(mails), *work)
    return {each: text for sending in (*receivers.values(), mails) for each, text in sending.problems.items()}


async def _by_connector(connector: Connector, sending: _Sending) -> None:
    client = None
    try:
        async with asyncio.timeout(_ALL_SECONDS):
            connection = await in_thread(connection_with_secrets, connector)
            client = opened = DeliveryClient(
                RuntimeOutput(
                    config=alert_output(connector),
                    connector=RuntimeConnector(type=connector.type, connection=connection),
                )
            )
            await sending.all(lambda each: opened.deliver_one(_as_message(each)))
    except TimeoutError:
        pass  # what is not sent has its problem already
    except (UnreadableSecretError, VaultUnavailableError) as error:
        for each in sending.notifications:
            sending.fail(each, error)
    except Exception as error:
        log.exception("The receiver of alerts %s cannot be used.", connector.pk)
        for each in list(sending.problems):
            sending.fail(each, f"{type(error).__name__}.")
    finally:
        if client is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.close()


async def _by_mail(sending: _Sending) -> None:
    # Not asyncio's own threads, whose end it would wait for.
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="alert-mails")
    loop = asyncio.get_running_loop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ALL_SECONDS):
            await sending.all(lambda each: loop.run_in_executor(pool, _mail, each))
    pool.shutdown(wait=False, cancel_futures=True)


def _mail(notification: Notification) -> None:
    """Raises OSError."""
    rule = notification.alert.rule
    subject = " ".join(f"[Headrace] {rule.name}: {notification.state}".split())
    send_mail(subject, notification.alert.message, None, [rule.email])


def _as_message(notification: Notification) -> Message:
    alert = notification.alert
    body = {
        "state": notification.state,
        "rule": alert.rule.name,
        "kind": alert.rule.kind,
        "subject": alert.subject,
        "message": alert.message,
        "started_at": alert.started_at.isoformat(),
    }
    return Message(
        id=str(uuid5(alert.pk, notification.state)),
        pipeline_id="alerts",
        version=0,
        key=str(alert.rule.pk).encode(),
        body=json.dumps(body).encode(),
        content_type="application/json",
        received_at=utc_now(),
        slip=(),
    )
