from django.apps import AppConfig


class ExportsConfig(AppConfig):
    name = "backend.apps.exports"
    verbose_name = "Exports"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from backend.apps.connectors.signals import connector_changed
        from backend.apps.exports.services import exports_offer_failed

        connector_changed.connect(exports_offer_failed, dispatch_uid="failed-exports")
