from django.apps import AppConfig


class DeliveriesConfig(AppConfig):
    name = "backend.apps.deliveries"
    verbose_name = "Deliveries"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from backend.apps.connectors.signals import connector_changed
        from backend.apps.deliveries.services import breakers_probe_soon

        connector_changed.connect(breakers_probe_soon, dispatch_uid="suspended-outputs")
