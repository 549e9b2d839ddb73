from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, SecretStr, ValidationInfo, field_validator

from backend.connectors.parts.server_address import ServerAddress
from backend.connectors.parts.tls import HttpsFields
from backend.domain import json
from backend.domain.capabilities import Connection, Options
from backend.domain.http_text import HeaderCredential
from backend.domain.masking import secret_values
from backend.domain.model import ADVANCED, SAME_SOURCE, StrictModel


def _object(secret: SecretStr) -> SecretStr:
    try:
        data = json.loads(secret.get_secret_value())
    except json.InvalidJsonError:
        data = None
    if not isinstance(data, dict):
        raise ValueError('Enter a JSON object, such as {"name": "Authorization", "value": "Bearer …"}.')
    return secret


class N8nCredential(StrictModel):
    """A credential that workflows use."""

    name: str = Field(
        min_length=1, max_length=60, description="Name by which the nodes of workflows refer to it.", examples=["erp"]
    )
    type: str = Field(
        pattern=r"^\w+$", description="Type of the credential, as n8n calls it.", examples=["httpHeaderAuth"]
    )
    data: Annotated[SecretStr, AfterValidator(_object)] = Field(
        description="Fields of the credential as a JSON object; n8n's page of the type lists them."
    )


class _Server(Connection):
    url: ServerAddress = Field(description="Address of n8n.", examples=["https://n8n.example.com"])
    api_key: HeaderCredential = Field(
        min_length=1,
        description="API key with the scopes workflow, execution (read, list) and credential (create, delete).",
    )
    credentials: list[N8nCredential] = Field(
        default_factory=list,
        max_length=100,
        description="Credentials that are made in n8n for the workflows that use them, and removed with them.",
    )


class N8nConnection(HttpsFields, _Server):  # in this order of bases, forms begin with the address
    """An n8n server with its public REST API."""

    def hosts(self) -> dict[str, list[str]]:
        return {"url": [self.url.host or ""]}

    def sent_secrets(self) -> list[str]:
        """Every secret, in each form in which it is sent."""
        fields = [json.loads(credential.data.get_secret_value()) for credential in self.credentials]
        values = [value for field in fields for value in field.values() if isinstance(value, str) and value]
        return [*secret_values(self), *values]


class N8nOptions(Options):
    """What a workflow's executions bring."""

    workflow: dict[str, JsonValue] = Field(
        description="The workflow as JSON, as n8n's editor exports it. It needs a trigger. A node that needs a "
        "credential names one of the connector.",
        examples=[
            {
                "name": "Orders",
                "nodes": [{"name": "Every hour", "type": "n8n-nodes-base.scheduleTrigger", "typeVersion": 1}],
                "connections": {},
            }
        ],
    )
    node: str = Field(
        min_length=1, description="Node whose output is read: each of its items is a message.", examples=["Every hour"]
    )
    timeout_seconds: float = Field(
        300.0,
        ge=1,
        le=600,
        description="Longest time for the list of new executions, and for the data of each, in seconds.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )

    @field_validator("workflow")
    @classmethod
    def _check_workflow(cls, workflow: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if not node_names(workflow):
            raise ValueError("The workflow has no nodes: export it from n8n's editor (Download).")
        return workflow

    @field_validator("node")
    @classmethod
    def _check_node(cls, node: str, info: ValidationInfo) -> str:
        names = node_names(info.data.get("workflow", {}))
        if names and node not in names:
            raise ValueError(f"The workflow has no node {node!r}; it has {', '.join(names)}.")
        return node


def node_names(workflow: Any) -> list[str]:
    """The names of a workflow's nodes, where they have the expected form."""
    nodes = workflow.get("nodes")
    if not isinstance(nodes, list):
        return []
    return [node["name"] for node in nodes if isinstance(node, dict) and isinstance(node.get("name"), str)]
