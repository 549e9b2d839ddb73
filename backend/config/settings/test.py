"""Tests: real servers, cheaper password hashing."""

from backend.config.settings.base import *  # noqa: F403
from backend.network.postgresql import TCP

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# A pool would outlive the test database.
DATABASES = {"default": DATABASES["default"] | {"OPTIONS": TCP}}  # noqa: F405
