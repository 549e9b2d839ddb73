from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "backend.apps.audit"
    default_auto_field = "django.db.models.BigAutoField"
