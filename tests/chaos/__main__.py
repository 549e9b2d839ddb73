"""``make chaos``: runs the suite with several seeds and writes the balance sheets to tests/bench/results/chaos.md."""

import argparse
import sys
from pathlib import Path

from tests.bench.machine import machine
from tests.chaos.faults import every_fault, schedule
from tests.chaos.suite import Outcome, report, run
from tests.installation import temporary_installation

RESULTS = Path(__file__).parents[1] / "bench/results/chaos.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--gap", type=int, default=600, help="requests between two faults")
    parser.add_argument("--keep", action="store_true", help="print the result without storing it")
    parser.add_argument("--jars", type=Path, help="use the jars in this folder instead of downloading them")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    with temporary_installation("chaos", arguments.jars) as installation:
        installation.up()
        for seed in arguments.seeds:
            faults = schedule(seed, every_fault(hold=arguments.gap), arguments.faults)
            outcomes.append(run(installation, seed, faults, gap=arguments.gap, phase=3 * arguments.gap))
            for account in outcomes[-1].unbalanced:
                print(account, flush=True)
            text = report(outcomes, machine())
            if not arguments.keep:
                RESULTS.write_text(text)
    print(text)
    return 1 if any(outcome.unbalanced for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
