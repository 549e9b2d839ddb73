from django.urls import path

from backend.apps.sql.api import views

urlpatterns = [
    path("sql/", views.SqlView.as_view()),
    path("sql/stream/", views.SqlStreamView.as_view()),
    path("sql/check/", views.SqlCheckView.as_view()),
    path("sql/language/", views.SqlLanguageView.as_view()),
    path("sql/objects/", views.SqlObjectsView.as_view()),
    path("sql/connectors/", views.SqlConnectorsView.as_view()),
    path("sql/queries/", views.SqlQueriesView.as_view()),
    path("sql/history/", views.SqlHistoryView.as_view()),
]
