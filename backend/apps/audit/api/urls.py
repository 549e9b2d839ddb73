from rest_framework.routers import SimpleRouter

from backend.apps.audit.api.views import AuditViewSet

router = SimpleRouter()
router.register("audit", AuditViewSet, basename="audit")

urlpatterns = router.urls
