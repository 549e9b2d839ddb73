from django.urls import path

from backend.apps.config_files.api.views import ConfigFilesView

urlpatterns = [path("config-files/", ConfigFilesView.as_view())]
