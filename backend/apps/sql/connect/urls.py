"""The paths of Kafka Connect, with or without a slash at their ends."""

from django.urls import URLPattern, re_path

from backend.apps.sql.connect import views
from backend.domain.connect_sql.statements import Change

_CONNECTOR = "connectors/(?P<name>[^/]+)"
_TASK = f"{_CONNECTOR}/tasks/(?P<number>[0-9]{{1,9}})"
_PLUGIN = "connector-plugins/(?P<plugin>[^/]+)"
_VIEWS = {
    "": views.WorkerView.as_view(),
    "health": views.HealthView.as_view(),
    "connector-plugins": views.PluginsView.as_view(),
    f"{_PLUGIN}/config": views.PluginConfigView.as_view(),
    f"{_PLUGIN}/config/validate": views.ValidateView.as_view(),
    "connectors": views.ConnectorsView.as_view(),
    _CONNECTOR: views.ConnectorView.as_view(),
    f"{_CONNECTOR}/config": views.ConfigView.as_view(),
    f"{_CONNECTOR}/status": views.StatusView.as_view(),
    f"{_CONNECTOR}/tasks": views.TasksView.as_view(),
    f"{_CONNECTOR}/tasks-config": views.TasksConfigView.as_view(),
    f"{_TASK}/status": views.TaskStatusView.as_view(),
    f"{_TASK}/restart": views.RestartView.as_view(),
    f"{_CONNECTOR}/restart": views.RestartView.as_view(),
    f"{_CONNECTOR}/pause": views.ChangeView.as_view(change=Change.PAUSE),
    f"{_CONNECTOR}/stop": views.ChangeView.as_view(change=Change.PAUSE, answered=204),
    f"{_CONNECTOR}/resume": views.ChangeView.as_view(change=Change.RESUME),
    f"{_CONNECTOR}/topics": views.TopicsView.as_view(),
    f"{_CONNECTOR}/topics/(?P<topic>[^/]+)/schema": views.TopicSchemaView.as_view(),
    f"{_CONNECTOR}/offsets": views.OffsetsView.as_view(),
    "admin/loggers": views.LoggersView.as_view(),
}
urlpatterns: list[URLPattern] = [re_path(f"^{path}/?$" if path else "^$", view) for path, view in _VIEWS.items()]
