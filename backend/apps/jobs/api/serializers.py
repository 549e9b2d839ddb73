from rest_framework import serializers

from backend.apps.jobs.models import SparkJob
from backend.apps.jobs.selectors import job_stages


class StageSerializer(serializers.Serializer):
    name = serializers.CharField()
    alive = serializers.BooleanField()
    slots = serializers.IntegerField(required=False)
    rows_per_second = serializers.FloatField(required=False)
    lag = serializers.IntegerField(required=False, allow_null=True, help_text="Messages waiting for the stage.")


class JobSerializer(serializers.ModelSerializer):
    stages = serializers.SerializerMethodField()

    class Meta:
        model = SparkJob
        fields = [
            "name",
            "stages",
            "desired",
            "status",
            "pid",
            "started_at",
            "failures",
            "restarts",
            "next_start_at",
            "exit_code",
            "last_error",
        ]
        read_only_fields = fields

    def get_stages(self, job: SparkJob) -> StageSerializer(many=True):  # type: ignore[valid-type]
        lags = self.context.get("lags", {})
        stages = [{**stage, "lag": lags.get(stage["name"])} for stage in job_stages(job)]
        return StageSerializer(stages, many=True).data


class LogSerializer(serializers.Serializer):
    lines = serializers.ListField(child=serializers.CharField())
