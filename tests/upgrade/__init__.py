"""An installation of a former release: its database with the keys of its secrets, and messages that were on their way.

Made by that release, of 2026-11-23: a connector with secrets, two published pipelines, an API key, a dead letter, a job
and the position of a sink. ``python -m tests.upgrade`` prints what the present release makes of it, as JSON.
"""
