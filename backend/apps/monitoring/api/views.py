import hmac
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework import mixins, viewsets
from rest_framework.serializers import BaseSerializer

from backend.apps.audit.services import audit_record
from backend.apps.monitoring.api.serializers import AlertRuleSerializer, AlertSerializer
from backend.apps.monitoring.health import components
from backend.apps.monitoring.models import Alert, AlertRule
from backend.apps.monitoring.prometheus import exposition
from backend.apps.workspaces.api.base import actor_of, workspace_of


def live(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "live"})


def ready(request: HttpRequest) -> JsonResponse:
    """200 when every component answers, else 503; either way with each component's state."""
    states = components()
    return JsonResponse(states, status=200 if set(states.values()) == {"ok"} else 503)


def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus, with the installation's metrics token as bearer token; the embedded installation needs none."""
    token = settings.CONSOLE.metrics_token.get_secret_value()
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not (hmac.compare_digest(given.encode(), token.encode()) if token else settings.CONSOLE.embedded):
        raise Http404
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST)


class AlertRuleViewSet(viewsets.ModelViewSet[AlertRule]):
    """When people are told that something is wrong."""

    queryset = AlertRule.objects.none()
    serializer_class = AlertRuleSerializer
    filterset_fields = ["kind", "enabled"]
    search_fields = ["name"]
    http_method_names = ["get", "post", "put", "delete"]

    def get_queryset(self) -> QuerySet[AlertRule]:
        return AlertRule.objects.filter(workspace=workspace_of(self.request))

    def perform_create(self, serializer: BaseSerializer[AlertRule]) -> None:
        with transaction.atomic():
            self._record("create", serializer.save(workspace=workspace_of(self.request)), {}, serializer.data)

    def perform_update(self, serializer: BaseSerializer[AlertRule]) -> None:
        before = self.get_serializer(self.get_object()).data
        with transaction.atomic():
            self._record("update", serializer.save(), before, serializer.data)

    def perform_destroy(self, instance: AlertRule) -> None:
        with transaction.atomic():
            self._record("delete", instance, self.get_serializer(instance).data, {})
            instance.delete()

    def _record(self, action: str, rule: AlertRule, before: dict[str, Any], after: dict[str, Any]) -> None:
        # As JSON, since a serializer's data holds UUIDs.
        audit_record(
            action=f"alert_rule.{action}",
            actor=actor_of(self.request),
            workspace=rule.workspace,
            target=rule,
            before=_plain(before),
            after=_plain(after),
        )


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, UUID) else value for name, value in data.items()}


class AlertViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[Alert]):
    """Rules that were, or are, fulfilled; newest first."""

    queryset = Alert.objects.none()
    serializer_class = AlertSerializer
    filterset_fields = {"rule": ["exact"], "ended_at": ["isnull"]}
    search_fields: list[str] = []

    def get_queryset(self) -> QuerySet[Alert]:
        return Alert.objects.filter(rule__workspace=workspace_of(self.request)).select_related("rule")
