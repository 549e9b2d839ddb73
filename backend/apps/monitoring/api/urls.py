from django.urls import path

from backend.apps.monitoring.api.views import live, ready

urlpatterns = [path("health/live", live), path("health/ready", ready)]
