"""Collections of MongoDB. FerretDB has no decimals, so that only numbers of 64 bits are exact there."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tests import mongodb
from tests.e2e.matrix.ends import End, Inlet, Outlet, Record


class _Collection(End):
    type, servers = "mongodb", (mongodb.mongodb_server,)
    connection = mongodb.CONNECTION
    integer_bits = 64

    def __init__(self) -> None:
        super().__init__()
        self.place = {"database": "matrix", "collection": self.name}


class MongodbInlet(_Collection, Inlet):
    """Elasticsearch takes no field of the name of its documents' own id."""

    transforms: ClassVar[list[dict[str, Any]]] = [{"type": "remove", "paths": ["_id"]}]

    def __init__(self) -> None:
        super().__init__()
        self.options = {**self.place, "mode": {"type": "whole"}}

    def write(self, records: Sequence[Record]) -> None:
        with mongodb.direct() as client:
            client["matrix"][self.name].insert_many([{"_id": record["id"], **record} for record in records])


class MongodbOutlet(_Collection, Outlet):
    output: ClassVar[dict[str, Any]] = {"batch": {"messages": 3, "seconds": 0.2}}

    def __init__(self) -> None:
        super().__init__()
        self.options = {**self.place, "write": "replace", "key": ["id"]}

    def read(self) -> list[Record]:
        with mongodb.direct() as client:
            return list(client["matrix"][self.name].find())
