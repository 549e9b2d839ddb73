"""An installation behind TLS."""

from django.core.exceptions import ImproperlyConfigured

from backend.config.settings.base import *  # noqa: F403
from backend.config.settings.base import CONSOLE

if not CONSOLE.django_secret_key.get_secret_value():
    raise ImproperlyConfigured("Set HEADRACE_DJANGO_SECRET_KEY to a long random text.")

SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
SECURE_REDIRECT_EXEMPT = [r"^health/"]
SECURE_HSTS_SECONDS = 31_536_000
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
