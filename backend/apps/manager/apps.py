from django.apps import AppConfig


class ManagerConfig(AppConfig):
    name = "backend.apps.manager"
    verbose_name = "Inputs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from backend.apps.connectors.signals import connector_changed
        from backend.apps.manager.leases import lease_follow, leases_offer_failed
        from backend.apps.pipelines.signals import pipeline_changed

        pipeline_changed.connect(lease_follow, dispatch_uid="input-leases")
        connector_changed.connect(leases_offer_failed, dispatch_uid="failed-inputs")
