from django.urls import path
from rest_framework.routers import SimpleRouter

from backend.apps.workspaces.api.views import ApiKeyViewSet, MeView, SessionView

router = SimpleRouter()
router.register("api-keys", ApiKeyViewSet, basename="api-key")

urlpatterns = [path("session/", SessionView.as_view()), path("me/", MeView.as_view()), *router.urls]
