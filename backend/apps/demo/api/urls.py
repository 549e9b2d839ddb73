from django.urls import path

from backend.apps.demo.api.views import GeneratorView

urlpatterns = [path("demo/generator/", GeneratorView.as_view())]
