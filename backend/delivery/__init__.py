"""The delivery engine: sends messages to their outputs, retries, and ends what cannot be delivered as a dead letter."""
