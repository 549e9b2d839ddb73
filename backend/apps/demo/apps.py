from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "backend.apps.demo"
    default_auto_field = "django.db.models.BigAutoField"
