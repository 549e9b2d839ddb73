from rest_framework import serializers

from backend.apps.audit.models import AuditEntry
from backend.apps.rest.serializers import ChangeSerializer
from backend.apps.rest.strict import StrictModelSerializer, StrictSerializer
from backend.apps.workspaces.models import ApiKey, Membership, Role, Scope


class WorkspaceSerializer(serializers.Serializer):
    slug = serializers.SlugField()
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)


class MeSerializer(serializers.Serializer):
    username = serializers.CharField()
    installation_admin = serializers.BooleanField(
        help_text="Whether they may do what concerns the whole installation, such as stopping its Spark jobs."
    )
    workspaces = WorkspaceSerializer(many=True)


class MemberSerializer(StrictModelSerializer):
    username = serializers.CharField(source="user.username")
    last_login = serializers.DateTimeField(source="user.last_login", read_only=True, allow_null=True)
    from_provider = serializers.SerializerMethodField(help_text="Whether the identity provider determines the role.")

    class Meta:
        model = Membership
        fields = ["id", "username", "role", "from_provider", "last_login"]

    def get_from_provider(self, member: Membership) -> bool:
        return member.user.subject is not None


class MemberRoleSerializer(StrictSerializer):
    echoed = tuple(MemberSerializer.Meta.fields)
    role = serializers.ChoiceField(choices=Role.choices)


class ApiKeySerializer(StrictModelSerializer):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices), allow_empty=False)
    key = serializers.CharField(
        read_only=True, required=False, help_text="The key itself; only in the response to its creation."
    )

    created_by = serializers.CharField(source="created_by.username", read_only=True)

    class Meta:
        model = ApiKey
        fields = ["id", "name", "prefix", "scopes", "created_by", "created_at", "expires_at", "revoked_at", "key"]
        read_only_fields = ["id", "prefix", "created_at", "revoked_at", "key"]


class AuditEntrySerializer(serializers.ModelSerializer):
    changes = ChangeSerializer(many=True)

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "action", "object_id", "object_name", "changes"]
        read_only_fields = fields
