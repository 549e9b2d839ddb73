from django.db import models
from django.utils import timezone


class ProviderSession(models.Model):
    """Links a browser session to the identity provider's session, so that the provider can end both and the console
    can check whether it is still valid."""

    sid = models.CharField(max_length=200, db_index=True, help_text="The provider's session.")
    subject = models.CharField(max_length=200, db_index=True, help_text="The provider's id of the person.")
    session_key = models.CharField(max_length=40, unique=True)
    refresh_token = models.BinaryField(default=b"", help_text="Encrypted; empty if the provider issued none.")
    next_check_at = models.DateTimeField(
        default=timezone.now, help_text="When the provider is next asked whether the session is valid."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.sid
