from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.kafka_proxies.api.serializers import KafkaProxySerializer
from backend.apps.kafka_proxies.selectors import kafka_proxies


class KafkaProxyList(APIView):
    @extend_schema(responses=KafkaProxySerializer(many=True), operation_id="kafka_proxies_list")
    def get(self, request: Request) -> Response:
        """The Kafka proxies of the installation: nodes, brokers, clients and their live rates."""
        return Response(KafkaProxySerializer(kafka_proxies(), many=True).data)
