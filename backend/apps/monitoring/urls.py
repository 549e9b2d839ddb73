from django.urls import path

from backend.apps.monitoring.views import live, metrics, ready

urlpatterns = [path("health/live", live), path("health/ready", ready), path("metrics", metrics)]
