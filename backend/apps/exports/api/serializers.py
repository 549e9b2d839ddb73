from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backend.apps.exports.models import Export
from backend.apps.rest.strict import StrictSerializer


class ExportSerializer(serializers.ModelSerializer):
    pipeline = serializers.UUIDField(source="pipeline_id")
    connector = serializers.UUIDField(source="connector_id", allow_null=True)
    file_bytes = serializers.SerializerMethodField(help_text="Size of the file; empty until it is written.")
    can_retry = serializers.SerializerMethodField(help_text="Whether it can be retried, now or after it failed again.")

    class Meta:
        model = Export
        fields = [
            "id",
            "pipeline",
            "output",
            "version",
            "connector",
            "number",
            "path",
            "state",
            "rows",
            "bytes",
            "written_rows",
            "file_bytes",
            "created_at",
            "committed_at",
            "reason",
            "error",
            "failures",
            "due_at",
            "can_retry",
        ]
        read_only_fields = fields

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_file_bytes(self, export: Export) -> int | None:
        return export.manifest["bytes"] if export.manifest else None

    def get_can_retry(self, export: Export) -> bool:
        return export.state in (Export.State.FAILED, Export.State.ABORTED) and export.can_be_written


class ExportPreviewSerializer(serializers.Serializer):
    columns = serializers.ListField(child=serializers.CharField())
    rows = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField(allow_null=True)),
        help_text="The first rows, cut short.",
    )


class ExportDetailSerializer(ExportSerializer):
    manifest = serializers.DictField(
        allow_null=True,
        help_text="What the file contains: rows, bytes, SHA-256, columns with their types, range of message ids.",
    )
    preview = ExportPreviewSerializer(allow_null=True)

    class Meta(ExportSerializer.Meta):
        fields = [*ExportSerializer.Meta.fields, "manifest", "preview"]
        read_only_fields = fields


class RetryExportSerializer(StrictSerializer):
    version = serializers.ChoiceField(
        choices=["original", "current"],
        default="original",
        help_text="Write it as the version says under which its messages were accepted, or as the published version.",
    )


class WaitingSerializer(serializers.Serializer):
    """Staged messages that are in no file yet."""

    pipeline = serializers.UUIDField(source="pipeline_id")
    output = serializers.CharField()
    version = serializers.IntegerField()
    messages = serializers.IntegerField()
    bytes = serializers.IntegerField(source="size", help_text="Of the message bodies.")
    oldest = serializers.DateTimeField()
    due_at = serializers.DateTimeField(
        allow_null=True, help_text="When they become a file at the latest; empty: only when there are enough."
    )


class CloseSerializer(StrictSerializer):
    pipeline = serializers.UUIDField()
    output = serializers.CharField(max_length=63)
