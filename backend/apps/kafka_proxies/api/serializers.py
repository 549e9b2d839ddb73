from rest_framework import serializers


class ThroughputSerializer(serializers.Serializer):
    """Rates are averages over five seconds; ``from`` and ``to`` are from the proxy's point of view."""

    connections = serializers.IntegerField()
    failures = serializers.IntegerField(help_text="Since the proxy started.")
    requests_per_second = serializers.FloatField()
    bytes_from_per_second = serializers.FloatField()
    bytes_to_per_second = serializers.FloatField()


class ProxyClientSerializer(ThroughputSerializer):
    name = serializers.CharField(allow_blank=True, help_text="The client id.")


class ProxyBrokerSerializer(ThroughputSerializer):
    id = serializers.IntegerField()
    address = serializers.CharField()
    rack = serializers.CharField(allow_null=True)
    proxy = serializers.IntegerField(help_text="The proxy node that represents it.")


class ProxyNodeSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    address = serializers.CharField()
    rack = serializers.CharField(allow_null=True)
    is_up = serializers.BooleanField()


class ProxyErrorSerializer(serializers.Serializer):
    at = serializers.DateTimeField()
    message = serializers.CharField()


class ProxyStatusSerializer(serializers.Serializer):
    cluster_id = serializers.CharField(allow_null=True)
    local = serializers.IntegerField(help_text="The id of the node that reports this status.")
    connections = serializers.IntegerField()
    is_draining = serializers.BooleanField()
    nodes = ProxyNodeSerializer(many=True)
    brokers = ProxyBrokerSerializer(many=True)
    clients = ProxyClientSerializer(many=True)
    last_errors = ProxyErrorSerializer(many=True)


class KafkaProxySerializer(serializers.Serializer):
    url = serializers.CharField(help_text="The proxy's operations address.")
    status = ProxyStatusSerializer(allow_null=True)
    error = serializers.CharField(allow_blank=True, help_text="Why there is no status.")
