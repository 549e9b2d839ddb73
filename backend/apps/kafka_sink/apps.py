from django.apps import AppConfig


class KafkaSinkConfig(AppConfig):
    name = "backend.apps.kafka_sink"
    verbose_name = "Kafka sink"
    default_auto_field = "django.db.models.BigAutoField"
