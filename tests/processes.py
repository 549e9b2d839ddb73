"""What each of Headrace's processes imports when it starts, as a script."""

_DJANGO = "import django; django.setup(); import "

PROCESSES = {
    "console": "import backend.config.asgi, backend.config.urls",
    "manager": f"{_DJANGO}backend.apps.manager.management.commands.manager_grpc",
    "worker": "import backend.config.celery; backend.config.celery.app.loader.import_default_modules()",
    "workers": f"{_DJANGO}backend.runtime.management.commands.workers",
    "read gateway": f"{_DJANGO}backend.apps.read_gateway.management.commands.read_gateway",
    "ingest": "import backend.ingest.app",
    "Kafka proxy": f"{_DJANGO}backend.runtime.management.commands.kafka_proxy",
}
