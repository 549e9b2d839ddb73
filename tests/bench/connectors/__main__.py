"""``make bench-connectors``: inputs and files, beside a peer that does the same, in one run.

The peer is Benthos 4.27, given as its binary with the components io, pure, pure/extended, kafka, aws and sql/base and
the driver lib/pq. With a recent Go it is built with ``-ldflags=-checklinkname=0``, which its Parquet library needs.
"""

import argparse
import sys
from pathlib import Path

from tests import infra  # noqa: F401  # sets the environment, before anything reads it

ROWS, WRITTEN, MESSAGES, INPUTS = 5_000_000, 500_000, 10_000_000, 1_000


def main() -> None:
    from tests.bench.connectors import export_files, leased_inputs, report, sql_input, sql_output
    from tests.bench.connectors.platform import running_platform

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, help="Benthos's binary; without it, only Headrace is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes, such as 0.02")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each engine, in turns")
    parser.add_argument("--only", choices=["table", "upserts", "files", "leases"], action="append")
    parser.add_argument("--keep", action="store_true", help="print the result without storing it")
    arguments = parser.parse_args()
    parts = arguments.only or ["table", "upserts", "files", "leases"]
    rows, inputs = int(ROWS * arguments.scale), int(INPUTS * arguments.scale)
    messages = export_files.whole_parts(int(MESSAGES * arguments.scale))
    results = report.Results()
    with running_platform() as platform:
        if "table" in parts:
            results.table = sql_input.compare(platform, arguments.peer, rows, arguments.rounds)
        if "upserts" in parts:
            written = int(WRITTEN * arguments.scale)
            results.upserts = sql_output.compare(platform, arguments.peer, written, arguments.rounds)
        if "files" in parts:
            results.files = export_files.compare(arguments.peer, messages, arguments.rounds)
        if "leases" in parts:
            results.leases = leased_inputs.run(inputs)
    text = results.text()
    print(text)
    if arguments.keep or arguments.only or arguments.scale != 1:
        print("The results were not stored.", file=sys.stderr)
    else:
        report.RESULTS.write_text(text)


if __name__ == "__main__":
    main()
