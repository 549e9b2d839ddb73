"""Sessions from the identity provider last as long as the provider accepts them."""

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

_CHECK_INTERVAL = timedelta(minutes=5)
_RETRY_AFTER = timedelta(minutes=1)


def provider_session_begin(*, session_key: str, sid: str, subject: str, refresh_token: str) -> None:
    """Links a browser's session to the provider's."""
    ProviderSession.objects.update_or_create(
        session_key=session_key,
        defaults={"sid": sid, "subject": subject, **_renewable(refresh_token)},
    )


def provider_session_holds(session_key: str) -> bool:
    """Whether the session is still valid. While it is in use, the provider is checked every five minutes, and the
    user's roles follow its answer. If it is unavailable, the session continues and the check is retried after a minute.
    """
    due = ProviderSession.objects.filter(session_key=session_key, next_check_at__lte=timezone.now())
    if not due.exclude(refresh_token=b"").exists():
        return True
    with transaction.atomic():
        # Only one of several concurrent requests renews: a refresh token may be valid for a single use.
        session = due.select_for_update(skip_locked=True).first()
        if session is None:
            return True
        try:
            _renew(session)
        except (SessionEndedError, UnreadableSecretError):
            provider_sessions_end(ProviderSession.objects.filter(pk=session.pk))
            return False
        except (RequestException, SuspiciousOperation) as error:
            log.warning("The identity provider could not renew a session: %s", type(error).__name__)
            session.next_check_at = timezone.now() + _RETRY_AFTER
            session.save()
    return True


def sessions_expire() -> None:
    """Deletes expired browser sessions and their links to the provider's sessions."""
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
    return {"refresh_token": sealed, "next_check_at": timezone.now() + _CHECK_INTERVAL}
