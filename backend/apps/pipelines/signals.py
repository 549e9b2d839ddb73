"""Signals about pipelines."""

from django.dispatch import Signal

pipeline_checked = Signal()
"""A version is about to be published. Sent with ``pipeline`` and ``config``: a receiver that raises ConfigError refuses
it."""
pipeline_changed = Signal()
"""The published version or the paused state has changed. Sent with ``pipeline`` and the published ``config``, None
without one, within the transaction of the change: a receiver that raises rolls it back. Not sent while this release
cannot read the published configuration: what receivers keep for it stays as it is."""
