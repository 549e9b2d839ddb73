"""Signals about pipelines."""

from django.dispatch import Signal

pipeline_changed = Signal()
"""The published version or the paused state has changed. Sent with ``pipeline``, within the transaction of the
change: a receiver that raises rolls it back."""
