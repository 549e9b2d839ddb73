"""The HTTP input: accepts messages, and answers once Kafka has acknowledged them."""
