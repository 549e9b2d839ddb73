from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.read_gateway.models import CommittedOffset, ConsumerGroup, GatewayNode, ValueSchema


class CommittedOffsetInline(admin.TabularInline[CommittedOffset, ConsumerGroup]):
    model = CommittedOffset
    extra = 0
    can_delete = False
    fields = readonly_fields = ("collection", "partition", "offset", "leader_epoch", "committed_at")


@admin.register(ConsumerGroup)
class ConsumerGroupAdmin(ReadOnlyAdmin[ConsumerGroup]):
    """Groups and offsets are changed by consumers, and by Kafka's tools through the gateway."""

    list_display = ["name", "workspace", "changed_at"]
    list_filter = ["workspace"]
    search_fields = ["name"]
    fields = ("name", "workspace", "claim", "state", "changed_at")
    inlines = [CommittedOffsetInline]


@admin.register(ValueSchema)
class ValueSchemaAdmin(ReadOnlyAdmin[ValueSchema]):
    list_display = ["id", "collection", "version"]
    search_fields = ["collection"]


@admin.register(GatewayNode)
class GatewayNodeAdmin(ReadOnlyAdmin[GatewayNode]):
    list_display = ["id", "host", "port", "seen_at"]
