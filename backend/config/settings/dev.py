"""A developer's machine and the embedded installation: plain HTTP on loopback."""

from backend.config.settings.base import *  # noqa: F403
