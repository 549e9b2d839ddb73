"""Signals about connectors."""

from datetime import timedelta

from django.dispatch import Signal

connector_changed = Signal()
"""A connector was saved: its connection or secrets may have changed. Sent with ``connector``, within the transaction of
the change: a receiver that raises rolls it back."""

HEARD_AFTER = timedelta(seconds=2)
"""How long after a change the data plane has heard of it. What is tried again sooner may use the former password."""
