"""What the REST API of every app is built with."""
