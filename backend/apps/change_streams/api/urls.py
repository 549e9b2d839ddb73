from rest_framework.routers import SimpleRouter

from backend.apps.change_streams.api.views import ChangeStreamViewSet

router = SimpleRouter()
router.register("change-streams", ChangeStreamViewSet, basename="change-stream")

urlpatterns = router.urls
