from django.apps import AppConfig


class ConfigFilesConfig(AppConfig):
    name = "backend.apps.config_files"
    verbose_name = "Configuration files"
