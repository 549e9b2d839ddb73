from rest_framework.routers import SimpleRouter

from backend.apps.exports.api.views import ExportViewSet

router = SimpleRouter()
router.register("exports", ExportViewSet, basename="export")

urlpatterns = router.urls
