"""Kafka's wire protocol: framing, and a codec compiled from the message definitions that Kafka is built from."""
