"""`mortal train` and `mortal resume` ended 1 to 5 s after their start: what is left behind?

    python -m benchmarks.killed_starts [--starts 100] [--seed 0]

By SIGKILL, SIGINT, SIGTERM and SIGHUP in turn, with a folder of temporary files and a state folder
of their own, so that whatever is left can be told: processes, the server's port, locks and leases,
temporary files. At the end a run has to go through.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.chaos.project import write_project
from tests.support.killed_starts import SIGNALS, Ground


def main() -> None:
    """Strike, print a line for each, then let a run go through."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="killed-starts-") as name:
        write_project(Path(name))
        ground = Ground(Path(name), "chaos.toml", "training.max_steps=5")
        ground.begin("again")
        for number in range(options.starts):
            run_id = "again" if number % 2 else f"new-{number}"
            sign = SIGNALS[number // 2 % len(SIGNALS)]
            outcome = ground.strike(run_id, sign, draw.uniform(1, 5))
            outcomes.append(outcome)
            print(json.dumps(outcome), flush=True)
        last = ground.start("again")
        output, _ = last.communicate()
        left = ground.left("again")
    failed = [outcome for outcome in outcomes if outcome["left"]]
    slowest = max(float(str(outcome["gone_s"])) for outcome in outcomes)
    print(f"starts: {len(outcomes)}, {dict(Counter(str(each['command']) for each in outcomes))}")
    print(f"starts that left something: {len(failed)}; the slowest was gone after {slowest:.1f} s")
    print(f"the next run: exit code {last.returncode}, left: {left or 'nothing'}")
    if failed or left or last.returncode:
        sys.exit(output if last.returncode else 1)


if __name__ == "__main__":
    main()
