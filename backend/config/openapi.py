"""What the OpenAPI document says of authentication. Imported when the document is generated."""

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator

from backend.apps.identity.authentication import JwtAuthentication
from backend.apps.workspaces.authentication import ApiKeyAuthentication, WorkspaceSessionAuthentication


class Generator(SchemaGenerator):
    """The library's own. Naming it in the settings is what imports this module."""


class _JwtScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = JwtAuthentication
    name = "jwt"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}


class _ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = ApiKeyAuthentication
    name = "apiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key, hr_…"}


class _SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = WorkspaceSessionAuthentication
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
