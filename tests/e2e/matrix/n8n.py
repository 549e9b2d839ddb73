"""Executions of n8n's workflows."""

from collections.abc import Sequence

import requests

from tests import n8n
from tests.e2e.matrix.ends import Inlet, Record, bodies_of
from tests.waiting import LIMIT_SECONDS


class N8nInlet(Inlet):
    """A workflow whose webhook takes the records. It exists once the pipeline is published."""

    type, servers = "n8n", (n8n.n8n_server,)
    marker = "n8n"
    exists_before = False

    def __init__(self) -> None:
        super().__init__()
        self.connection = {"url": n8n.URL, "api_key": n8n.api_key()}
        self.options = {"workflow": n8n.webhook_workflow(self.name), "node": "Items"}

    @classmethod
    def holds(cls, record: Record) -> bool:
        """n8n's numbers are JavaScript's."""
        return record["id"] not in (2, 3, 4, 6)

    def write(self, records: Sequence[Record]) -> None:
        body = b'{"items": [%s]}' % b", ".join(bodies_of(records))
        headers = {"Content-Type": "application/json"}
        requests.post(f"{n8n.URL}/webhook/{self.name}", body, headers=headers, timeout=LIMIT_SECONDS).raise_for_status()
