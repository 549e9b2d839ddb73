from django.contrib import admin

from backend.apps.jobs.models import SparkJob


@admin.register(SparkJob)
class SparkJobAdmin(admin.ModelAdmin[SparkJob]):
    list_display = ["name", "desired", "status", "started_at", "failures", "restarts"]
    fields = ["name", "stages", "slots", "desired", "status", "started_at", "failures", "restarts", "last_error"]
    readonly_fields = ["status", "started_at", "failures", "restarts", "last_error"]
