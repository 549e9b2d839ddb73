from django.urls import path
from rest_framework.routers import SimpleRouter

from backend.apps.pipelines.api.views import ConfigFilesView, PipelineViewSet

router = SimpleRouter()
router.register("pipelines", PipelineViewSet, basename="pipeline")

urlpatterns = [path("config-files/", ConfigFilesView.as_view()), *router.urls]
