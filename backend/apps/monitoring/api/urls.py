from django.urls import path
from rest_framework.routers import SimpleRouter

from backend.apps.monitoring.api.views import (
    ActivityView,
    AlertRuleViewSet,
    AlertViewSet,
    ConditionsView,
    ConnectorActivityView,
    PipelineActivityViewSet,
    ThroughputView,
)

router = SimpleRouter()
router.register("alert-rules", AlertRuleViewSet, basename="alert-rule")
router.register("alerts", AlertViewSet, basename="alert")
router.register("pipelines", PipelineActivityViewSet, basename="pipeline-activity")

urlpatterns = [
    path("conditions/", ConditionsView.as_view()),
    path("activity/", ActivityView.as_view()),
    path("connector-activity/", ConnectorActivityView.as_view()),
    path("throughput/", ThroughputView.as_view()),
    *router.urls,
]
