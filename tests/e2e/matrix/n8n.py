"""Executions of n8n's workflows."""

from collections.abc import Sequence

import requests

from tests import n8n
from tests.e2e.matrix.ends import Inlet, Record, bodies_of
from tests.waiting import LIMIT_SECONDS, wait_until


class N8nInlet(Inlet):
    """A workflow whose webhook takes the records. It exists once the pipeline is published. Its numbers are those of
    JavaScript."""

    type, servers = "n8n", (n8n.n8n_server,)
    marker = "n8n"
    exists_before = False
    integer_bits = 54

    def __init__(self) -> None:
        super().__init__()
        self.connection = {"url": n8n.URL, "api_key": n8n.api_key()}
        self.options = {"workflow": n8n.webhook_workflow(self.name), "node": "Items"}

    def write(self, records: Sequence[Record]) -> None:
        body = b'{"items": [%s]}' % b", ".join(bodies_of(records))
        headers = {"Content-Type": "application/json"}

        def is_taken() -> bool:
            """The workflow is made in n8n some time after the pipeline is published."""
            answer = requests.post(f"{n8n.URL}/webhook/{self.name}", body, headers=headers, timeout=LIMIT_SECONDS)
            if answer.status_code != 404:
                answer.raise_for_status()
            return answer.ok

        wait_until(is_taken, interval=0.5)
