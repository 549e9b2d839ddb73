from rest_framework.routers import SimpleRouter

from backend.apps.monitoring.api.views import AlertRuleViewSet, AlertViewSet, PipelineActivityViewSet

router = SimpleRouter()
router.register("alert-rules", AlertRuleViewSet, basename="alert-rule")
router.register("alerts", AlertViewSet, basename="alert")
router.register("pipelines", PipelineActivityViewSet, basename="pipeline-activity")

urlpatterns = router.urls
