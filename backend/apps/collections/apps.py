from django.apps import AppConfig


class CollectionsConfig(AppConfig):
    name = "backend.apps.collections"
    verbose_name = "Collections"
