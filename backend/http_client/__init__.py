"""An HTTP client for many small requests at once."""
