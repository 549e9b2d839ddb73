from django.apps import AppConfig


class ChangeStreamsConfig(AppConfig):
    name = "backend.apps.change_streams"
    verbose_name = "Change streams"

    def ready(self) -> None:
        from backend.apps.collections.selectors import streams_fed_by
        from backend.apps.connectors.dependents import dependents_register

        dependents_register("connector", streams_fed_by)
