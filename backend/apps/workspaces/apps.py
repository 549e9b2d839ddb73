from django.apps import AppConfig


class WorkspacesConfig(AppConfig):
    name = "backend.apps.workspaces"
    default_auto_field = "django.db.models.BigAutoField"
