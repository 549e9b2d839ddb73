import contextlib
from typing import Any

from backend.connectors.n8n.client import N8nClient
from backend.connectors.n8n.connection import N8nConnection, N8nCredential, N8nOptions
from backend.domain import json
from backend.domain.capabilities import DeliveryError, Register, RegistrationState
from backend.domain.reasons import Reason

_CALL_SECONDS = 25.0
_STATE_SECONDS = 12.0
"""Less than Headrace leaves a registration, so that the error names n8n and credentials of no use can be removed."""
_NODE_FIELDS = {
    "id",
    "name",
    "webhookId",
    "disabled",
    "notesInFlow",
    "notes",
    "type",
    "typeVersion",
    "executeOnce",
    "alwaysOutputData",
    "retryOnFail",
    "maxTries",
    "waitBetweenTries",
    "onError",
    "position",
    "parameters",
    "credentials",
}
_SETTINGS = {
    "saveExecutionProgress",
    "saveDataErrorExecution",
    "executionTimeout",
    "errorWorkflow",
    "timezone",
    "executionOrder",
}


class N8nRegister(Register[N8nConnection, N8nOptions]):
    """Makes the workflow and the credentials that it uses, and activates it.

    May be repeated: the workflow is found again by its name, which ends with the registration's. Credentials are made
    anew each time, since n8n does not show or change them, and the former ones removed; if the process is killed right
    after n8n made a credential, that one stays in n8n, unused. Removing takes the workflow's executions along."""

    options_model = N8nOptions

    async def open(self) -> None:
        self._client = N8nClient(self.connection)

    async def close(self) -> None:
        await self._client.close()

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    async def register(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        async with self._client.limit(_CALL_SECONDS):
            return await self._register(name)

    async def unregister(self, name: str, made: dict[str, Any]) -> None:
        async with self._client.limit(_CALL_SECONDS):
            await self._unregister(name)

    async def state(self, name: str, made: dict[str, Any]) -> RegistrationState:
        async with self._client.limit(_STATE_SECONDS):
            workflow = await self._client.ask("GET", f"workflows/{made['workflow']}")
        if workflow is None:
            return RegistrationState("The workflow was removed from n8n: publish the pipeline again to make it anew.")
        if not workflow.get("active"):
            text = "The workflow is not active in n8n: activate it there, or publish the pipeline again."
            return RegistrationState(text)
        return RegistrationState()

    async def _register(self, name: str) -> dict[str, Any]:
        used = self._used_credentials()
        workflow = await self._find(name)
        former = _credentials_of(workflow, name)
        if workflow is None:
            workflow = await self._save("POST", "workflows", self._workflow(name, {}))
        credentials: dict[str, str] = {}
        try:
            for credential in used:
                credentials[credential.name] = await self._make_credential(name, credential)
            await self._save("PUT", f"workflows/{workflow['id']}", self._workflow(name, credentials))
        except BaseException:
            await self._remove_credentials(set(credentials.values()))
            raise
        await self._remove_credentials(former)
        try:
            await self._client.ask("POST", f"workflows/{workflow['id']}/activate")
        except DeliveryError as error:
            raise _about_workflow(error) from None
        return {"workflow": workflow["id"]}

    async def _unregister(self, name: str) -> None:
        workflow = await self._find(name)
        if workflow is None:
            return
        # The workflow goes last: it knows the credentials, in case of a crash.
        with contextlib.suppress(DeliveryError):
            await self._client.ask("POST", f"workflows/{workflow['id']}/deactivate")
        await self._remove_credentials(_credentials_of(workflow, name))
        await self._client.ask("DELETE", f"workflows/{workflow['id']}")

    async def _find(self, name: str) -> dict[str, Any] | None:
        async for rows in self._client.pages("workflows", name=name):
            for row in rows:
                if str(row.get("name", "")).endswith(f"({name})"):
                    return row
        return None

    def _used_credentials(self) -> list[N8nCredential]:
        """Those that the workflow's nodes name. Raises DeliveryError when one is not known."""
        known = {(credential.type, credential.name): credential for credential in self.connection.credentials}
        used: dict[tuple[str, str], N8nCredential] = {}
        for node in _nodes(self.options.workflow):
            for type, reference in (node.get("credentials") or {}).items():
                key = type, str((reference or {}).get("name", ""))
                if key not in known:
                    text = (
                        f"The node {node.get('name')} needs the credential {key[1]!r} of the type {type}: add it to "
                        "the connector."
                    )
                    raise DeliveryError(Reason.CONFIGURATION, text, retryable=True, option="workflow")
                used[key] = known[key]
        return list(used.values())

    def _workflow(self, name: str, credentials: dict[str, str]) -> dict[str, Any]:
        """As n8n's API takes it, with the credentials by their ids; those that are not made yet are left out."""
        given = self.options.workflow
        settings = given.get("settings")
        kept = {key: value for key, value in settings.items() if key in _SETTINGS} if isinstance(settings, dict) else {}
        nodes: list[dict[str, Any]] = []
        for node in _nodes(given):
            fields = {key: value for key, value in node.items() if key in _NODE_FIELDS and key != "credentials"}
            references = {
                type: {"id": credentials[reference["name"]], "name": _credential_name(name, reference["name"])}
                for type, reference in (node.get("credentials") or {}).items()
                if reference["name"] in credentials
            }
            position = {} if "position" in fields else {"position": [200 * len(nodes), 0]}
            nodes.append(
                {"parameters": {}, **fields, **position, **({"credentials": references} if references else {})}
            )
        return {
            "name": f"{str(given.get('name') or 'Workflow')[:60]} ({name})",
            "nodes": nodes,
            "connections": given.get("connections") or {},
            "settings": {**kept, "saveDataSuccessExecution": "all"},
        }

    async def _save(self, method: str, path: str, workflow: dict[str, Any]) -> dict[str, Any]:
        try:
            saved: dict[str, Any] | None = await self._client.ask(method, path, workflow)
        except DeliveryError as error:
            raise _about_workflow(error) from None
        if saved is None:
            raise DeliveryError(Reason.CONFIGURATION, "n8n has removed the workflow meanwhile.", retryable=True)
        return saved

    async def _make_credential(self, name: str, credential: N8nCredential) -> str:
        body = {
            "name": _credential_name(name, credential.name),
            "type": credential.type,
            "data": json.loads(credential.data.get_secret_value()),
        }
        try:
            made = await self._client.ask("POST", "credentials", body)
        except DeliveryError as error:
            text = f"The credential {credential.name} of the connector is refused. {error}"
            raise DeliveryError(error.reason, text, retryable=error.retryable, status=error.status) from None
        return str(made["id"])

    async def _remove_credentials(self, ids: set[str]) -> None:
        for credential_id in ids:
            await self._client.ask("DELETE", f"credentials/{credential_id}")


def _credential_name(name: str, credential: str) -> str:
    return f"{credential} ({name})"


def _credentials_of(workflow: dict[str, Any] | None, name: str) -> set[str]:
    """The ids of a workflow's credentials that were made for this registration."""
    references = [
        reference
        for node in _nodes(workflow or {})
        for reference in (node.get("credentials") or {}).values()
        if isinstance(reference, dict)
    ]
    return {str(r["id"]) for r in references if r.get("id") and str(r.get("name", "")).endswith(f"({name})")}


def _nodes(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in workflow.get("nodes") or [] if isinstance(node, dict)]


def _about_workflow(error: DeliveryError) -> DeliveryError:
    if error.reason != "http_400":
        return error
    return DeliveryError(error.reason, str(error), retryable=False, status=error.status, option="workflow")
