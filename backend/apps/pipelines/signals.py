"""What others may follow about pipelines."""

from django.dispatch import Signal

pipeline_changed = Signal()
"""What is published, or whether it is paused, was changed. Sent with ``pipeline``, within the transaction of the
change: a receiver that raises undoes it."""
