"""A stand-in for n8n: ``python tests/n8n_stand_in.py PORT``.

It has what Headrace uses of the public API, as n8n 1.123 answers, and runs the nodes that the tests' workflows are made
of. All is kept in memory.
"""

import asyncio
import itertools
import json
import re
import secrets
import sys
from collections.abc import Iterator
from typing import Any

from aiohttp import ClientSession, web

_WORKFLOW_FIELDS = {"name", "nodes", "connections", "settings"}
_SETTINGS = {
    "saveExecutionProgress",
    "saveManualExecutions",
    "saveDataErrorExecution",
    "saveDataSuccessExecution",
    "executionTimeout",
    "errorWorkflow",
    "timezone",
    "executionOrder",
}
_WEBHOOK = "n8n-nodes-base.webhook"
_EXPRESSION = re.compile(r"={{ (?:JSON\.stringify\()?\$json\.([\w.]+)\)? }}")

Item = dict[str, Any]


class _NodeFailed(Exception):
    """A node that ends its execution."""


def _refused(status: int, message: str) -> web.HTTPException:
    error = web.HTTPClientError(text=json.dumps({"message": message}), content_type="application/json")
    error.set_status(status)
    return error


def _not_found() -> web.HTTPException:
    return _refused(404, "Not Found")


def _field(document: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(document, dict) or name not in document:
            raise _NodeFailed(f"There is no field {path}.")
        document = document[name]
    return document


def _value(parameter: Any, item: Item) -> Any:
    """What a parameter is for an item, if it is one of the expressions of the tests."""
    found = _EXPRESSION.fullmatch(parameter) if isinstance(parameter, str) else None
    return _field(item, found[1]) if found else parameter


class StandIn:
    """The server's state."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._numbers = itertools.count(1)
        self._workflows: dict[str, dict[str, Any]] = {}
        self._credentials: dict[str, dict[str, Any]] = {}
        self._executions: dict[int, dict[str, Any]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._authorized], client_max_size=16 * 1024**2)
        api = "/api/v1"
        app.add_routes(
            [
                web.get("/rest/settings", self._settings),
                web.post("/rest/owner/setup", self._settings),
                web.post("/rest/api-keys", self._make_key),
                web.get(f"{api}/workflows", self._list_workflows),
                web.post(f"{api}/workflows", self._make_workflow),
                web.get(f"{api}/workflows/{{id}}", self._show_workflow),
                web.put(f"{api}/workflows/{{id}}", self._change_workflow),
                web.delete(f"{api}/workflows/{{id}}", self._remove_workflow),
                web.post(f"{api}/workflows/{{id}}/activate", self._activate),
                web.post(f"{api}/workflows/{{id}}/deactivate", self._deactivate),
                web.post(f"{api}/credentials", self._make_credential),
                web.delete(f"{api}/credentials/{{id}}", self._remove_credential),
                web.get(f"{api}/executions", self._list_executions),
                web.get(f"{api}/executions/{{id}}", self._show_execution),
                web.post("/webhook/{path}", self._call_webhook),
            ]
        )
        return app

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith("/api/") and request.headers.get("X-N8N-API-KEY") not in self._keys:
            raise _refused(401, "unauthorized")
        response: web.StreamResponse = await handler(request)
        return response

    async def _settings(self, _: web.Request) -> web.Response:
        return web.json_response({"data": {}})

    async def _make_key(self, _: web.Request) -> web.Response:
        key = secrets.token_urlsafe(32)
        self._keys.add(key)
        return web.json_response({"data": {"rawApiKey": key}})

    # -- workflows

    async def _list_workflows(self, request: web.Request) -> web.Response:
        part = request.query.get("name", "")
        return _page(request, [row for row in self._workflows.values() if part in row["name"]])

    async def _make_workflow(self, request: web.Request) -> web.Response:
        workflow = await self._checked(request)
        workflow |= {"id": secrets.token_hex(8), "active": False}
        self._workflows[workflow["id"]] = workflow
        return web.json_response(workflow)

    async def _show_workflow(self, request: web.Request) -> web.Response:
        return web.json_response(self._workflow(request))

    async def _change_workflow(self, request: web.Request) -> web.Response:
        workflow = self._workflow(request)
        workflow.update(await self._checked(request))
        return web.json_response(workflow)

    async def _remove_workflow(self, request: web.Request) -> web.Response:
        workflow = self._workflow(request)
        del self._workflows[workflow["id"]]
        kept = {number: row for number, row in self._executions.items() if row["workflowId"] != workflow["id"]}
        self._executions = kept
        return web.json_response(workflow)

    async def _activate(self, request: web.Request) -> web.Response:
        workflow = self._workflow(request)
        if not any(node["type"] == _WEBHOOK for node in workflow["nodes"]):
            raise _refused(400, "Workflow cannot be activated because it has no trigger node.")
        workflow["active"] = True
        return web.json_response(workflow)

    async def _deactivate(self, request: web.Request) -> web.Response:
        workflow = self._workflow(request)
        workflow["active"] = False
        return web.json_response(workflow)

    def _workflow(self, request: web.Request) -> dict[str, Any]:
        workflow = self._workflows.get(request.match_info["id"])
        if workflow is None:
            raise _not_found()
        return workflow

    async def _checked(self, request: web.Request) -> dict[str, Any]:
        workflow: dict[str, Any] = await request.json()
        for missing in sorted(_WORKFLOW_FIELDS - workflow.keys()):
            raise _refused(400, f"request/body must have required property '{missing}'")
        if workflow.keys() - _WORKFLOW_FIELDS:
            raise _refused(400, "request/body must NOT have additional properties")
        if workflow["settings"].keys() - _SETTINGS:
            raise _refused(400, "request/body/settings must NOT have additional properties")
        return workflow

    # -- credentials

    async def _make_credential(self, request: web.Request) -> web.Response:
        credential = await request.json()
        for field in ("name", "value"):
            if field not in credential["data"]:
                raise _refused(400, f'request.body.data requires property "{field}"')
        credential["id"] = secrets.token_hex(8)
        self._credentials[credential["id"]] = credential
        return web.json_response({"id": credential["id"], "name": credential["name"], "type": credential["type"]})

    async def _remove_credential(self, request: web.Request) -> web.Response:
        credential = self._credentials.pop(request.match_info["id"], None)
        if credential is None:
            raise _not_found()
        return web.json_response({"id": credential["id"]})

    # -- executions

    async def _list_executions(self, request: web.Request) -> web.Response:
        """Those that run are listed only when they are asked for."""
        workflow, status = request.query.get("workflowId"), request.query.get("status")
        rows = [
            {"id": number, "workflowId": row["workflowId"], "status": row["status"]}
            for number, row in sorted(self._executions.items(), reverse=True)
            if workflow in (None, row["workflowId"])
            and (row["status"] == status if status else row["status"] != "running")
        ]
        return _page(request, rows)

    async def _show_execution(self, request: web.Request) -> web.Response:
        execution = self._executions.get(int(request.match_info["id"]))
        if execution is None:
            raise _not_found()
        shown = {"id": int(request.match_info["id"]), "status": execution["status"]}
        if request.query.get("includeData") == "true":
            shown["data"] = {"resultData": {"runData": execution["runs"]}}
        return web.json_response(shown)

    async def _call_webhook(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        for workflow in self._workflows.values():
            for node in workflow["nodes"]:
                if workflow["active"] and node["type"] == _WEBHOOK and node["parameters"].get("path") == path:
                    execution = {"workflowId": workflow["id"], "status": "running", "runs": {}}
                    self._executions[next(self._numbers)] = execution
                    task = asyncio.create_task(self._run(workflow, node, execution, {"body": await request.json()}))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
                    return web.json_response({"message": "Workflow was started"})
        raise _refused(404, f'The requested webhook "POST {path}" is not registered.')

    async def _run(
        self, workflow: dict[str, Any], start: dict[str, Any], execution: dict[str, Any], item: Item
    ) -> None:
        items = [item]
        try:
            for node in _following(workflow, start):
                items = await self._output(node, items)
                output = [{"json": item} for item in items]
                execution["runs"][node["name"]] = [{"data": {"main": [output]}}]
        except _NodeFailed:
            execution["status"] = "error"
        else:
            execution["status"] = "success"

    async def _output(self, node: dict[str, Any], items: list[Item]) -> list[Item]:
        """Raises _NodeFailed."""
        parameters = node["parameters"]
        match node["type"].removeprefix("n8n-nodes-base."):
            case "webhook":
                return items
            case "wait":
                await asyncio.sleep(max([float(_value(parameters["amount"], item)) for item in items], default=0))
                return items
            case "splitOut":
                return [part for item in items for part in _field(item, parameters["fieldToSplitOut"])]
            case "httpRequest":
                return [await self._request(node, item) for item in items]
        raise _NodeFailed(f"The stand-in has no node {node['type']}.")

    async def _request(self, node: dict[str, Any], item: Item) -> Item:
        parameters = node["parameters"]
        credential = self._credentials[node["credentials"][parameters["genericAuthType"]]["id"]]["data"]
        headers = {credential["name"]: credential["value"]}
        body = _value(parameters["jsonBody"], item)
        async with (
            ClientSession() as session,
            session.request(parameters["method"], parameters["url"], json=body, headers=headers) as answer,
        ):
            answered: Item = await answer.json()
            return answered


def _following(workflow: dict[str, Any], node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The node, and those that come after it."""
    nodes = {node["name"]: node for node in workflow["nodes"]}
    while True:
        yield node
        targets = workflow["connections"].get(node["name"])
        if not targets:
            return
        node = nodes[targets["main"][0][0]["node"]]


def _page(request: web.Request, rows: list[dict[str, Any]]) -> web.Response:
    start, limit = int(request.query.get("cursor", 0)), int(request.query.get("limit", 100))
    following = str(start + limit) if start + limit < len(rows) else None
    return web.json_response({"data": rows[start : start + limit], "nextCursor": following})


if __name__ == "__main__":
    web.run_app(StandIn().app(), host="127.0.0.1", port=int(sys.argv[1]), print=None)
