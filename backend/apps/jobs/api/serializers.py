from typing import Any

from django.conf import settings
from rest_framework import serializers

from backend.apps.jobs.models import RESOURCES, SparkJob
from backend.apps.jobs.selectors import job_stages
from backend.apps.rest.strict import StrictModelSerializer
from backend.domain.demand import Demand, StageState


class StageSerializer(serializers.Serializer):
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in StageState])
    demand = serializers.ChoiceField(choices=[demand.value for demand in Demand], help_text="Why it runs or rests.")
    pipelines = serializers.IntegerField(help_text="Published pipelines that need it.")
    slots = serializers.IntegerField(help_text="Task slots that it occupies.")
    rows_per_second = serializers.FloatField(required=False)
    lag = serializers.IntegerField(required=False, allow_null=True, help_text="Messages waiting for the stage.")


class JobSerializer(serializers.ModelSerializer):
    stages = serializers.SerializerMethodField()
    last_error = serializers.SerializerMethodField(
        help_text="A line of its log: empty except for administrators of the installation."
    )

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
            "problem",
            *RESOURCES,
        ]
        read_only_fields = fields

    def get_last_error(self, job: SparkJob) -> str:
        access = self.context["request"].auth
        return job.last_error if access.installation_admin else ""

    def get_stages(self, job: SparkJob) -> StageSerializer(many=True):  # type: ignore[valid-type]
        lags, pipelines = self.context.get("lags", {}), self.context.get("pipelines", {})
        stages = [
            {**stage, "lag": lags.get(stage["name"]), "pipelines": pipelines.get(stage["name"], 0)}
            for stage in job_stages(job)
        ]
        return StageSerializer(stages, many=True).data


class ResourcesSerializer(StrictModelSerializer):
    """What a job's application is to have."""

    slots = serializers.IntegerField(min_value=1, max_value=100, help_text="Lane tasks per stage.")
    master = serializers.RegexField(
        r"^(local(\[(\d+|\*)(,\d+)?\])?|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*|k8s://https?://[\w.:-]+)$",
        allow_blank=True,
        max_length=500,
        error_messages={"invalid": "Enter local, local[SLOTS], spark://HOST:PORT or k8s://https://HOST:PORT."},
        help_text="Spark's master; that of the settings when empty.",
    )
    driver_memory = serializers.IntegerField(min_value=256, max_value=65_536, help_text="MiB.")
    executor_memory = serializers.IntegerField(
        min_value=512, max_value=262_144, allow_null=True, help_text="MiB; Spark's default when null."
    )
    executor_cores = serializers.IntegerField(
        min_value=1,
        max_value=256,
        allow_null=True,
        help_text="Task slots of each executor; all of a worker's when null.",
    )
    most_cores = serializers.IntegerField(
        min_value=1, max_value=10_000, allow_null=True, help_text="Task slots on the whole cluster; all when null."
    )

    class Meta:
        model = SparkJob
        fields = RESOURCES

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        resources = {**self.instance.resources(), **attrs} if self.instance is not None else attrs
        master = resources["master"] or settings.CONSOLE.spark_master
        unused = [name for name in ("executor_memory", "executor_cores", "most_cores") if resources[name] is not None]
        if master.startswith("local") and unused:
            text = f"Spark runs in the driver's process ({master}) and has no executors: leave this empty."
            raise serializers.ValidationError(dict.fromkeys(unused, text))
        return attrs


class LogSerializer(serializers.Serializer):
    lines = serializers.ListField(child=serializers.CharField())
