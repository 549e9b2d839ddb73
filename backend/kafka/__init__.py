"""Everything that speaks Kafka: librdkafka for the data plane's own topics, and a proxy with its own codec."""
