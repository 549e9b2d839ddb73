from django.urls import path
from rest_framework.routers import SimpleRouter

from backend.apps.deliveries.api.views import (
    AttemptViewSet,
    DeadLetterViewSet,
    OutputEventViewSet,
    OutputViewSet,
)

router = SimpleRouter()
router.register("dead-letters", DeadLetterViewSet, basename="dead-letter")
router.register("attempts", AttemptViewSet, basename="attempt")
router.register("output-events", OutputEventViewSet, basename="output-event")

urlpatterns = [
    path("pipelines/<uuid:pipeline>/outputs/", OutputViewSet.as_view({"get": "list"})),
    path("pipelines/<uuid:pipeline>/outputs/<slug:name>/breaker/", OutputViewSet.as_view({"post": "breaker"})),
    *router.urls,
]
