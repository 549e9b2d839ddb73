from django.urls import path
from rest_framework.routers import SimpleRouter

from backend.apps.connectors.api.views import ConnectorTypesView, ConnectorViewSet

router = SimpleRouter()
router.register("connectors", ConnectorViewSet, basename="connector")

urlpatterns = [path("connector-types/", ConnectorTypesView.as_view()), *router.urls]
