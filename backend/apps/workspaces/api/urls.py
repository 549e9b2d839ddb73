from django.urls import path
from rest_framework.routers import SimpleRouter

from backend.apps.workspaces.api.views import ApiKeyViewSet, AuditViewSet, MemberViewSet, MeView

router = SimpleRouter()
router.register("api-keys", ApiKeyViewSet, basename="api-key")
router.register("members", MemberViewSet, basename="member")
router.register("audit", AuditViewSet, basename="audit")

urlpatterns = [path("me/", MeView.as_view()), *router.urls]
