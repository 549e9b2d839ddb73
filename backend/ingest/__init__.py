"""The HTTP input: takes messages, answers once Kafka has them."""
