"""Kafka's wire protocol: framing, and a codec made of the message definitions that Kafka itself is built from."""
