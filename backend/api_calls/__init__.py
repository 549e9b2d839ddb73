"""Calls of external systems by the steps of a pipeline, and what steps remember of earlier messages."""
