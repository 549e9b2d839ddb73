from django.apps import AppConfig
from django.db.models.signals import post_save


class MonitoringConfig(AppConfig):
    name = "backend.apps.monitoring"
    verbose_name = "Monitoring"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from backend.apps.connectors.dependents import dependents_register
        from backend.apps.monitoring.conditions import statuses_of
        from backend.apps.monitoring.selectors import alert_rules_using
        from backend.apps.monitoring.services import alert_rules_create_default
        from backend.apps.pipelines.statuses import statuses_register
        from backend.apps.workspaces.models import Workspace

        dependents_register("alert_rule", alert_rules_using)
        statuses_register(statuses_of)
        post_save.connect(alert_rules_create_default, sender=Workspace, dispatch_uid="default-alert-rules")
