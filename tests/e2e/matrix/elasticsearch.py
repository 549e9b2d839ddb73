"""Indexes of OpenSearch, which keep each document as it was written."""

from typing import Any, ClassVar

from tests import opensearch
from tests.e2e.matrix.ends import Outlet, Record, parsed


class ElasticsearchOutlet(Outlet):
    type, servers = "elasticsearch", (opensearch.opensearch_server,)
    connection: ClassVar[dict[str, Any]] = {
        "url": opensearch.URL,
        "authentication": {"type": "basic", "username": opensearch.USER, "password": opensearch.PASSWORD},
        "ca": opensearch.AUTHORITY.certificate.read_text(),
    }
    output: ClassVar[dict[str, Any]] = {"batch": {"messages": 3, "seconds": 0.2}}

    def __init__(self) -> None:
        super().__init__()
        self.options = {"index": self.name, "document_id": "{{id}}"}
        # Dynamic mapping rejects integers beyond 64 bits.
        assert opensearch.api("PUT", self.name, {"mappings": {"dynamic": False}}).ok

    def read(self) -> list[Record]:
        return [parsed(source) for source in opensearch.sources(self.name)]
