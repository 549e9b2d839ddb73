from django.apps import AppConfig


class KafkaProxiesConfig(AppConfig):
    name = "backend.apps.kafka_proxies"
    verbose_name = "Kafka proxies"
