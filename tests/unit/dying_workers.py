"""Spark's own daemon, whose workers die as they are told: ``python -m tests.unit.dying_workers``.

A worker reads one line of JSON from its socket, begins the records of ``begin``, of which those of ``end`` end, answers
with the deadly records that it knows of, and does what ``then`` says. "wait" is to wait for being killed.
"""

import json
import os
import signal
import socket
import sys
import time
from typing import Any

from pyspark import daemon

from spark_jobs.streaming import worker_deaths

TOPIC = "firehose_transformer"


def _worker(sock: socket.socket, _authenticated: bool) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # as Spark's own does
    cell = worker_deaths.own_cell()
    cell.read_from(TOPIC)
    with sock.makefile("rwb") as stream:
        order: dict[str, Any] = json.loads(stream.readline())
        for partition, offset in order.get("begin", []):
            cell.begin(partition, offset)
            if [partition, offset] in order.get("end", []):
                cell.end()
        known = worker_deaths.deadly_records(TOPIC)
        stream.write(json.dumps([[*place, *deaths] for place, deaths in known.items()]).encode() + b"\n")
    _die(order.get("then", "return"))
    return 0


def _die(how: str) -> None:
    match how.split():
        case ["signal", name]:
            os.kill(os.getpid(), signal.Signals[name])
        case ["exit", status]:
            os._exit(int(status))
        case ["fork"]:  # a process of the worker's own, which ends as it likes
            if not (child := os.fork()):
                os._exit(7)
            os.waitpid(child, 0)
        case ["wait"]:
            time.sleep(600)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    daemon.worker = _worker
    worker_deaths.watch_workers()
    daemon.manager()
