from django.urls import path

from backend.apps.kafka_proxies.api.views import KafkaProxyList

urlpatterns = [path("kafka-proxies/", KafkaProxyList.as_view())]
