from django.apps import AppConfig


class DeliveriesConfig(AppConfig):
    name = "backend.apps.deliveries"
    verbose_name = "Deliveries"
    default_auto_field = "django.db.models.BigAutoField"
