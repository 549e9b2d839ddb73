"""Helpers around librdkafka: an asyncio producer, and reads of a topic's end outside any consumer group."""
