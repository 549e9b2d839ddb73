from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularJSONAPIView

from backend.config.views import console

admin.autodiscover()

api: list[URLPattern | URLResolver] = [
    path("", include("backend.apps.workspaces.api.urls")),
    path("", include("backend.apps.identity.api.urls")),
    path("", include("backend.apps.connectors.api.urls")),
    path("", include("backend.apps.pipelines.api.urls")),
    path("", include("backend.apps.manager.api.urls")),
    path("", include("backend.apps.exports.api.urls")),
    path("", include("backend.apps.collections.api.urls")),
    path("", include("backend.apps.change_streams.api.urls")),
    path("", include("backend.apps.config_files.api.urls")),
    path("", include("backend.apps.deliveries.api.urls")),
    path("", include("backend.apps.usage.api.urls")),
    path("", include("backend.apps.jobs.api.urls")),
    path("", include("backend.apps.kafka_proxies.api.urls")),
    path("", include("backend.apps.sql.api.urls")),
    path("", include("backend.apps.monitoring.api.urls")),
    path("", include("backend.apps.demo.api.urls")),
    path("schema/", SpectacularAPIView.as_view(permission_classes=[]), name="schema"),
    path("schema.json", SpectacularJSONAPIView.as_view(permission_classes=[])),
]

urlpatterns = [
    path("api/v1/", include(api)),
    path("admin/", admin.site.urls),
    path("oidc/", include("backend.apps.identity.urls")),
    re_path(r"^connect(?:/|$)", include("backend.apps.sql.connect.urls")),
    path("", include("backend.apps.monitoring.urls")),
    # Every other path is a page of the single-page application.
    re_path(r"^(?!api/|static/|docs/|ws/|demo/|oidc/|connect(?:/|$)|metrics).*$", console),
]
