"""Tests: real servers, cheaper password hashing."""

from backend.config.settings.base import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES["default"]["OPTIONS"] = {}  # noqa: F405  a pool would outlive the test database
