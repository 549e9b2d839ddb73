from rest_framework.routers import SimpleRouter

from backend.apps.manager.api.views import PipelineInputViewSet

router = SimpleRouter()
router.register("pipelines", PipelineInputViewSet, basename="pipeline-input")

urlpatterns = router.urls
