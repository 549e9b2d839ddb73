from django.apps import AppConfig
from django.db.models.signals import post_delete


class SqlConfig(AppConfig):
    name = "backend.apps.sql"
    verbose_name = "SQL"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from backend.apps.connectors.secret_store import resealer_register
        from backend.apps.pipelines.signals import pipeline_changed, pipeline_checked
        from backend.apps.sql.catalogue import query_deleted
        from backend.apps.sql.models import SqlQuery
        from backend.apps.sql.secrets import secrets_reseal
        from backend.apps.sql.stages import stage_check, stage_follow

        resealer_register(secrets_reseal)
        pipeline_checked.connect(stage_check, dispatch_uid="sql-stages")
        pipeline_changed.connect(stage_follow, dispatch_uid="sql-stages")
        post_delete.connect(query_deleted, sender=SqlQuery, dispatch_uid="sql-job")
