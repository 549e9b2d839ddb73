"""A real OAuth 2.0 authorization server for client credentials, and an API that takes its tokens."""

import base64
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from aiohttp import web

from tests.receiver import Answer, Receiver, receiver

CLIENT_ID = "headrace/é:1"
CLIENT_SECRET = "planted client+secret&é"


@dataclass
class Issuer:
    """What the authorization server is told, and what it has issued. ``status`` replaces its next answers."""

    url: str = ""
    forms: list[dict[str, str]] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    valid: set[str] = field(default_factory=set)
    lifetime: float = 300
    status: int = 200

    def authentication(self, **fields: Any) -> dict[str, Any]:
        return {
            "type": "oauth",
            "token_url": f"{self.url}token",
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            **fields,
        }

    async def answer(self, request: web.Request) -> web.Response:
        form = dict(parse_qsl(await request.text()))
        login = (form.pop("client_id", ""), form.pop("client_secret", ""))
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            name, _, password = base64.b64decode(credentials).decode().partition(":")
            login = (unquote_plus(name), unquote_plus(password))
            form["login"] = "header"
        self.forms.append(form)
        if self.status != 200:
            return web.Response(status=self.status)
        if login != (CLIENT_ID, CLIENT_SECRET):
            error = {"error": "invalid_client", "error_description": f"{login[1]} is wrong"}
            return web.json_response(error, status=401)
        if form["grant_type"] != "client_credentials":
            return web.json_response({"error": "unsupported_grant_type"}, status=400)
        if form.get("scope") == "everything":
            return web.json_response({"error": "invalid_scope"}, status=400)
        token = secrets.token_urlsafe(24)
        self.tokens.append(token)
        self.valid.add(token)
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime})


@asynccontextmanager
async def issuing(tls: ssl.SSLContext | None = None) -> AsyncIterator[Issuer]:
    issuer = Issuer()
    async with receiver(issuer.answer, tls) as running:
        issuer.clients = running.clients
        issuer.url = running.url
        yield issuer


@asynccontextmanager
async def protected(
    answer: Answer, *, tls: ssl.SSLContext | None = None, issuer_tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Issuer, Receiver]]:
    """An API whose requests need a valid token, and the server that issues them."""

    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(issuing(issuer_tls))

        async def checked(request: web.Request) -> web.Response:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            if scheme != "Bearer" or token not in issuer.valid:
                return web.Response(status=401, text=f"{token} is not valid")
            return await answer(request)

        yield issuer, await stack.enter_async_context(receiver(checked, tls))
