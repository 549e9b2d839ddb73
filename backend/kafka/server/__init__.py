"""What Headrace's Kafka services have in common: addresses, TLS, connections of clients, SCRAM and placement."""
