from django.urls import path
from mozilla_django_oidc.views import OIDCAuthenticationRequestView

from backend.apps.identity.views import CallbackView, backchannel_logout

urlpatterns = [
    path("authenticate/", OIDCAuthenticationRequestView.as_view(), name="oidc_authentication_init"),
    path("callback/", CallbackView.as_view(), name="oidc_authentication_callback"),
    path("backchannel-logout/", backchannel_logout),
]
