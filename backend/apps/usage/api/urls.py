from django.urls import path

from backend.apps.usage.api.views import BilledDeliveriesView, UsageExportView, UsageView

urlpatterns = [
    path("usage/", UsageView.as_view()),
    path("usage/deliveries/", BilledDeliveriesView.as_view()),
    path("usage/export/", UsageExportView.as_view()),
]
