from django.contrib import admin

from backend.apps.audit.admin_bases import ReadOnlyAdmin
from backend.apps.kafka_sink.models import QuarantinedRecord


@admin.register(QuarantinedRecord)
class QuarantinedRecordAdmin(ReadOnlyAdmin[QuarantinedRecord]):
    list_display = ["at", "sink", "position", "reason", "error"]
    list_filter = ["sink", "reason", "at"]
    search_fields = ["error"]
    exclude = ["key", "value"]
