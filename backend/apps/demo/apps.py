from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "backend.apps.demo"
    verbose_name = "Demo"
    default_auto_field = "django.db.models.BigAutoField"
