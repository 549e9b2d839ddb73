"""Vault, or OpenBao: its KV v2 engine stores sealed secrets and those that connectors refer to.

Below ``HEADRACE_VAULT_PATH``, ``connectors/ID`` holds what Headrace sealed; Vault never sees these
secrets in plain text. ``workspaces/SLUG/…`` is for users: a secret entered as ``vault:PATH#KEY`` is read from
there whenever it is used. Each workspace has its own part, so that none can read another's.
"""

import base64
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from django.conf import settings

T = TypeVar("T")
_SECONDS = 5.0
_PAUSE_SECONDS = 5.0
"""After a request that Vault has not answered, others fail for this long instead of waiting for the same thing."""
_REFERENCE = re.compile(r"vault:(?P<path>[\w./-]+)#(?P<key>[\w.-]+)")


class VaultUnavailableError(Exception):
    """Vault cannot be reached or rejects the installation; a retry may succeed."""


class VaultRefusesError(VaultUnavailableError):
    """Vault works and accepts the installation, but refuses this one request. The message contains no secret."""


class MissingReferenceError(LookupError):
    """The target of a reference does not exist. The message contains no secret."""


def is_reference(text: str) -> bool:
    """Whether a secret's text refers to one in Vault: ``vault:PATH#KEY``."""
    return _REFERENCE.fullmatch(text) is not None


class Vault:
    """The installation's part of one KV v2 engine. Signs in with a token or as an AppRole."""

    def __init__(
        self, *, url: str, mount: str, path: str, token: str = "", role_id: str = "", secret_id: str = ""
    ) -> None:
        import hvac  # most installations have no Vault

        self._client = hvac.Client(url, token=token or None, timeout=_SECONDS)
        self._kv = self._client.secrets.kv.v2
        self._mount = mount
        self._path = path
        self._role = (role_id, secret_id) if role_id else None
        self._paused_until = 0.0

    def write(self, name: str, sealed: bytes) -> int:
        """Stores a sealed secret and returns its version number, since the transaction may yet be rolled back."""
        content = {"sealed": base64.b64encode(sealed).decode()}
        answer = self._call(
            lambda: self._kv.create_or_update_secret(self._sealed(name), content, mount_point=self._mount)
        )
        return int(answer["data"]["version"])

    def read(self, name: str, version: int) -> bytes:
        """Raises MissingReferenceError when it was deleted from Vault, and VaultRefusesError."""
        data = self._read(self._sealed(name), version)
        if data is None or "sealed" not in data:
            raise MissingReferenceError("The stored secret was deleted from Vault.")
        return base64.b64decode(data["sealed"])

    def delete(self, name: str) -> None:
        self._call(lambda: self._kv.delete_metadata_and_all_versions(self._sealed(name), mount_point=self._mount))

    def destroy(self, name: str, version: int) -> None:
        """Destroys one version permanently."""
        self._call(
            lambda: self._kv.destroy_secret_versions(self._sealed(name), versions=[version], mount_point=self._mount)
        )

    def resolve(self, workspace: str, reference: str) -> str:
        """The secret that a workspace's reference names. Raises MissingReferenceError and VaultRefusesError."""
        match = _REFERENCE.fullmatch(reference)
        path, key = (match["path"], match["key"]) if match else ("", "")
        if ".." in path.split("/"):
            raise MissingReferenceError(f"{reference} leads out of the workspace's part of Vault.")
        where = f"{self._path}/workspaces/{workspace}/{path}"
        data = self._read(where)
        if data is None:
            raise MissingReferenceError(f"Vault has nothing at {self._mount}/{where}.")
        if not isinstance(data.get(key), str):
            raise MissingReferenceError(f"What Vault has at {self._mount}/{where} has no text under the key {key}.")
        return str(data[key])

    def _sealed(self, name: str) -> str:
        return f"{self._path}/connectors/{name}"

    def _read(self, path: str, version: int | None = None) -> dict[str, Any] | None:
        from hvac.exceptions import InvalidPath

        def read() -> Any:
            return self._kv.read_secret_version(
                path, version=version, mount_point=self._mount, raise_on_deleted_version=True
            )

        try:
            return dict(self._call(read)["data"]["data"])
        except InvalidPath:
            return None
        except VaultRefusesError:
            raise VaultRefusesError(
                f"Vault does not let Headrace read {self._mount}/{path}. Its policy has to allow that."
            ) from None

    def _call(self, call: Callable[[], T]) -> T:
        if time.monotonic() < self._paused_until:
            raise VaultUnavailableError("Vault cannot be reached: it has not answered a moment ago.")
        from hvac.exceptions import InvalidPath, VaultError
        from requests import RequestException

        try:
            if self._role and not self._client.token:
                self._sign_in()
            return self._permitted(call)
        except InvalidPath:
            raise
        except VaultError as error:
            raise VaultUnavailableError(f"Vault rejected the request: {type(error).__name__}.") from None
        except RequestException as error:
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            raise VaultUnavailableError(f"Vault cannot be reached: {type(error).__name__}.") from None

    def _permitted(self, call: Callable[[], T]) -> T:
        """Signs in again once when the token has expired. Raises VaultRefusesError when it is valid and the request is
        refused all the same."""
        from hvac.exceptions import Forbidden, InvalidRequest, UnsupportedOperation

        try:
            return call()
        except Forbidden:
            if self._role is None:
                self._client.lookup_token()  # Forbidden as well if it is the token that Vault rejects
            else:
                self._sign_in()
        except (InvalidRequest, UnsupportedOperation) as error:
            raise VaultRefusesError(f"Vault refuses the request: {type(error).__name__}.") from None
        try:
            return call()
        except Forbidden:
            raise VaultRefusesError("Vault refuses the request: Forbidden.") from None

    def _sign_in(self) -> None:
        assert self._role is not None
        role_id, secret_id = self._role
        self._client.auth.approle.login(role_id=role_id, secret_id=secret_id)


def vault() -> Vault | None:
    """The installation's Vault, if it has one."""
    console = settings.CONSOLE
    if not console.vault_url:
        return None
    return _vault(
        url=console.vault_url,
        mount=console.vault_mount,
        path=console.vault_path,
        token=console.vault_token.get_secret_value(),
        role_id=console.vault_role_id,
        secret_id=console.vault_secret_id.get_secret_value(),
    )


@lru_cache(maxsize=1)
def _vault(**fields: str) -> Vault:
    """Cached, so that one sign-in serves many calls."""
    return Vault(**fields)
