from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "backend.apps.usage"
    default_auto_field = "django.db.models.BigAutoField"
