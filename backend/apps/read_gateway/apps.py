from django.apps import AppConfig


class ReadGatewayConfig(AppConfig):
    name = "backend.apps.read_gateway"
    verbose_name = "Read gateway"
    default_auto_field = "django.db.models.BigAutoField"
