from django.apps import AppConfig


class PipelinesConfig(AppConfig):
    name = "backend.apps.pipelines"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from backend.apps.connectors.dependents import dependents_register
        from backend.apps.pipelines.selectors import pipelines_using

        dependents_register(pipelines_using)
