"""What every connector fulfils against its real server: one suite per capability.

A connector's test file inherits the suites of its capabilities and says how its server is reached and read.
"""

from tests.integration.connectors.suites.calls import Answers, CallSuite
from tests.integration.connectors.suites.collections import CollectSuite
from tests.integration.connectors.suites.common import Reaching, message, opened
from tests.integration.connectors.suites.exports import ExportSuite, Store, exporter
from tests.integration.connectors.suites.inputs import (
    DOCUMENTS,
    PrefetchSuite,
    ReadBatchSuite,
    ReadStreamSuite,
    Source,
    input_reader,
)
from tests.integration.connectors.suites.outputs import DeliverBatchSuite, DeliverSuite, Server
from tests.integration.connectors.suites.registrations import Registering, RegisterSuite
from tests.integration.connectors.suites.verification import Genuine, VerifySuite

__all__ = [
    "DOCUMENTS",
    "Answers",
    "CallSuite",
    "CollectSuite",
    "DeliverBatchSuite",
    "DeliverSuite",
    "ExportSuite",
    "Genuine",
    "PrefetchSuite",
    "Reaching",
    "ReadBatchSuite",
    "ReadStreamSuite",
    "RegisterSuite",
    "Registering",
    "Server",
    "Source",
    "Store",
    "VerifySuite",
    "exporter",
    "input_reader",
    "message",
    "opened",
]
