from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from uuid_utils.compat import uuid7


class Role(models.TextChoices):
    """What a member may do; each role includes the ones before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        order = list(Role)
        return order.index(self) >= order.index(other)


class User(AbstractUser):
    """A person who signs in."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    subject = models.CharField(
        max_length=200, unique=True, null=True, blank=True, help_text="The identity provider's id of the person."
    )
    via = ""
    """The API key that acts on their behalf in this request, if any. Not stored."""

    @property
    def name(self) -> str:
        return self.username


class Workspace(models.Model):
    """A tenant: workspaces are isolated from each other."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)
    members: "models.ManyToManyField[User, Membership]" = models.ManyToManyField(User, through="Membership")

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person's role in a workspace."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    role = models.CharField(max_length=20, choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workspace", "user"], name="one_role_per_workspace")]

    def __str__(self) -> str:
        return f"{self.user} in {self.workspace}: {self.role}"


class Scope(models.TextChoices):
    """What an API key may do."""

    INGEST = "ingest", "Post messages"
    READ = "read", "Read everything but secrets"
    WRITE = "write", "Change connectors and pipelines"


class ApiKey(models.Model):
    """A program's key to one workspace. Only its hash is stored."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, help_text="The key's first characters, to tell keys apart.")
    hash = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the key, hexadecimal.")
    scram = models.JSONField(
        default=dict, help_text="What the read gateway checks the key with in SCRAM, by mechanism; never the key."
    )
    scopes = ArrayField(models.CharField(max_length=20, choices=Scope.choices))
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
