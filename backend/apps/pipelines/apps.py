from django.apps import AppConfig


class PipelinesConfig(AppConfig):
    name = "backend.apps.pipelines"
    verbose_name = "Pipelines"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from backend.apps.connectors.dependents import dependents_register
        from backend.apps.pipelines.selectors import leftovers_in, pipelines_using

        dependents_register("pipeline", pipelines_using)
        dependents_register("registration", leftovers_in)
