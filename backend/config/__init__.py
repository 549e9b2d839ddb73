"""Django's entry points: settings, URLs, ASGI, Celery, middleware, and the API's error format."""
