from rest_framework import serializers

from backend.apps.rest.serializers import ChangeSerializer
from backend.apps.rest.strict import StrictSerializer


class ApplySerializer(StrictSerializer):
    yaml = serializers.CharField(
        trim_whitespace=False, max_length=10 * 1024 * 1024, help_text="Documents in the format of the export."
    )
    prune = serializers.BooleanField(default=False, help_text="Delete connectors and pipelines that no document names.")
    dry_run = serializers.BooleanField(default=True, help_text="Only report what would be done.")


class StepSerializer(serializers.Serializer):
    action = serializers.CharField(help_text="create, update, publish, pause, resume or delete.")
    kind = serializers.CharField(help_text="connector or pipeline.")
    name = serializers.CharField()
    changes = ChangeSerializer(many=True)
