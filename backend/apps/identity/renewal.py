"""Sessions that came from the identity provider last as long as it stands by them."""

import logging
from datetime import timedelta

from django.contrib.sessions.models import Session
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.utils import timezone
from requests.exceptions import RequestException

from backend.apps.connectors.secrets import UnreadableSecretError, cipher
from backend.apps.identity.backend import KeycloakBackend, SessionEndedError
from backend.apps.identity.models import ProviderSession
from backend.apps.identity.services import provider_sessions_end

log = logging.getLogger(__name__)

_ASKED_AGAIN = timedelta(minutes=5)
_TRIED_AGAIN = timedelta(minutes=1)


def provider_session_begin(*, session_key: str, sid: str, subject: str, refresh_token: str) -> None:
    """Remembers where a browser's session came from."""
    ProviderSession.objects.update_or_create(
        session_key=session_key,
        defaults={"sid": sid, "subject": subject, **_renewable(refresh_token)},
    )


def provider_session_holds(session_key: str) -> bool:
    """Whether the session goes on. The provider is asked while the session is used, every five minutes, and the
    person's roles follow its answer; when it cannot be asked, the session goes on and it is tried again a minute later.
    """
    due = ProviderSession.objects.filter(session_key=session_key, next_check_at__lte=timezone.now())
    if not due.exclude(refresh_token=b"").exists():
        return True
    with transaction.atomic():
        # Of requests that come together one asks: a refresh token may be good for one use.
        session = due.select_for_update(skip_locked=True).first()
        if session is None:
            return True
        try:
            _renew(session)
        except (SessionEndedError, UnreadableSecretError):
            provider_sessions_end(ProviderSession.objects.filter(pk=session.pk))
            return False
        except (RequestException, SuspiciousOperation) as error:
            log.warning("The identity provider could not be asked about a session: %s", type(error).__name__)
            session.next_check_at = timezone.now() + _TRIED_AGAIN
            session.save()
    return True


def sessions_expire() -> None:
    """Deletes browsers' sessions that are over, and what is known of where they came from."""
    Session.objects.filter(expire_date__lt=timezone.now()).delete()
    ProviderSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()


def _renew(session: ProviderSession) -> None:
    provider = KeycloakBackend()
    tokens = provider.renewed(cipher().open(bytes(session.refresh_token)).decode())
    for name, value in _renewable(tokens.get("refresh_token", "")).items():
        setattr(session, name, value)
    session.save()
    provider.follow_roles(session.subject, tokens)


def _renewable(refresh_token: str) -> dict[str, object]:
    sealed = cipher().seal(refresh_token.encode()) if refresh_token else b""
    return {"refresh_token": sealed, "next_check_at": timezone.now() + _ASKED_AGAIN}
