"""Producing to Kafka from an event loop."""
