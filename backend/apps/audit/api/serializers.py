from rest_framework import serializers

from backend.apps.audit.models import AuditEntry


class ChangeSerializer(serializers.Serializer):
    path = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)


class AuditEntrySerializer(serializers.ModelSerializer):
    changes = ChangeSerializer(many=True)

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "action", "object_id", "object_name", "changes"]
        read_only_fields = fields
