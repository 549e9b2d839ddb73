from django.db import models


class ProviderSession(models.Model):
    """Which browser session came from which session of the identity provider, so that it can end both."""

    sid = models.CharField(max_length=200, db_index=True, help_text="The provider's session.")
    subject = models.CharField(max_length=200, db_index=True, help_text="The provider's id of the person.")
    session_key = models.CharField(max_length=40, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.sid
