from rest_framework import serializers

from backend.apps.workspaces.models import ApiKey, Role, Scope


class WorkspaceSerializer(serializers.Serializer):
    slug = serializers.SlugField()
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)


class MeSerializer(serializers.Serializer):
    username = serializers.CharField()
    workspaces = WorkspaceSerializer(many=True)


class ApiKeySerializer(serializers.ModelSerializer):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices), allow_empty=False)
    key = serializers.CharField(
        read_only=True, required=False, help_text="The key itself; only in the answer to its creation."
    )

    class Meta:
        model = ApiKey
        fields = ["id", "name", "prefix", "scopes", "created_at", "expires_at", "revoked_at", "key"]
        read_only_fields = ["id", "prefix", "created_at", "revoked_at", "key"]
