from django.urls import path

from backend.apps.identity.api.views import SessionView

urlpatterns = [path("session/", SessionView.as_view())]
