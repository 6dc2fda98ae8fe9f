"""Seconds of a step on Modal where requests, reloads and commits take their time.

    python -m benchmarks.modal_latency                       # make bench-modal-latency

The demo is run on the local control plane, tests/modal_plane, whose line is as long as that to a
data centre (`--delays`), and whose Volume takes its time to reload and to commit. The demo's model
is tiny, so a step is waiting, and what Python does around it: on a machine that has other work, the
quickest step tells more than the median. Requests are counted where clients send them: RPCs, and
what goes by HTTP. Exits with 1 if a run ends with other bits than the first.

What the plane proves and what not, its README says: the delays here are assumptions about Modal.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT
from benchmarks.output import add_output_option, console, results_table, write_results
from tests.modal_plane.plane import ModalPlane
from tests.support.modal.sources import hidden_sources

CONFIG = ROOT / "deployments/configs/demo.toml"
DELAYS_MS = (0, 40, 150)
RELOAD_S = 0.2
COMMIT_S = 0.5
METHODS = ("reload", "volume", "checkpoint")
"""Ways of syncing weights that containers have; `direct` needs one machine."""
GOAL_S = 2.0
"""Of a step, with `reload`, for every delay."""
NUM_STEPS = 11
LEFT_OUT = 2
"""First steps, in which containers start and connections are made."""
SETTINGS = (
    "compute.backend=modal",
    "model.warm_start.steps=5",
    f"training.max_steps={NUM_STEPS}",
    "evaluation.eval_steps=0",
    "checkpoints.save_steps=100",
    "rewards.dry_run=false",
)

Row = dict[str, Any]


def main() -> None:
    """Measure in turn, print the table, write the results."""
    args = _parse()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="modal-latency-") as folder:
        for method, delay_ms in product(args.methods, args.delays):
            if method == "reload" or delay_ms == max(args.delays):
                rows.append(_measure(Path(folder), method, delay_ms))
                console.print(_line(rows[-1]))
    _print_report(rows)
    write_results(args.output, {"goal_s": GOAL_S, "rows": rows})
    sys.exit(len({row["weights"] for row in rows}) > 1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modal_latency")
    parser.add_argument("--delays", type=_numbers, default=DELAYS_MS, help="ms, such as 0,40,150")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    add_output_option(parser, "modal_latency")
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


def _measure(folder: Path, method: str, delay_ms: int) -> Row:
    """One run on a plane of its own."""
    run_id = f"{method}-{delay_ms}"
    here = folder / run_id
    own = {"PREFECT_API_URL": "", "HF_HUB_OFFLINE": "1"}
    options = ["--env", "HF_HUB_OFFLINE=1", "--env", "OMP_NUM_THREADS=1"]
    options += ["--line-delay", str(delay_ms / 1000)]
    options += ["--reload-delay", str(RELOAD_S), "--commit-delay", str(COMMIT_S)]
    with ModalPlane(here / "plane", *hidden_sources(), *options) as plane:
        plane.run(sys.executable, "-m", "mortal", "deploy", cwd=ROOT, env=own)
        folders = [f"run_id={run_id}", f"runs_dir={here / 'runs'}"]
        job = {
            "config": str(CONFIG),
            "overrides": [*SETTINGS, f"rollout.weight_sync={method}", *folders],
            "output": str(here / "outcome.json"),
        }
        with (here / "job.log").open("w") as log:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.modal_latency.job", json.dumps(job)],
                cwd=ROOT,
                env={**os.environ, **plane.env, **own},
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise SystemExit((here / "job.log").read_text())
    outcome = json.loads((here / "outcome.json").read_text())
    asked = {"method": method, "delay_ms": delay_ms}
    return {**asked, **_per_step(outcome["stamps"]), "weights": outcome["weights"]}


def _per_step(stamps: Sequence[Mapping[str, Any]]) -> Row:
    """Median seconds, and requests on average, of the steps after the first."""
    counted = stamps[LEFT_OUT:]
    times = [after["time"] - before["time"] for before, after in pairwise(counted)]
    first, last = counted[0], counted[-1]
    client = Counter(last["client"])
    client.subtract(first["client"])
    volume = {name: last["volume"][name] - first["volume"][name] for name in last["volume"]}
    return {
        "step_s": statistics.median(times),
        "steps_s": times,
        "requests": {name: n / len(times) for name, n in sorted(client.items()) if n},
        "reloads": volume["VolumeReload"] / len(times),
        "commits": volume["VolumeCommit"] / len(times),
    }


def _line(row: Row) -> str:
    asked = ", ".join(f"{name} {number:.1f}" for name, number in row["requests"].items())
    return (
        f"{row['method']:10} {row['delay_ms']:4} ms  {row['step_s']:5.2f} s a step"
        f", {row['reloads']:.1f} reloads, {row['commits']:.1f} commits; {asked}"
    )


def _print_report(rows: Sequence[Row]) -> None:
    table = results_table(
        f"A step of the demo; a reload takes {RELOAD_S:g} s, a commit {COMMIT_S:g} s "
        f"(goal: {GOAL_S:g} s with `reload`)",
        *(
            "weight_sync",
            "a request",
            "a step",
            "the quickest",
            "requests",
            "RPCs",
            "reloads",
            "commits",
        ),
        left=("weight_sync",),
    )
    for row in rows:
        everything = sum(row["requests"].values())
        by_http = sum(n for name, n in row["requests"].items() if name.startswith("HTTP"))
        numbers = (everything, everything - by_http, row["reloads"], row["commits"])
        table.add_row(
            row["method"],
            f"{row['delay_ms']} ms",
            f"{row['step_s']:.2f} s",
            f"{min(row['steps_s']):.2f} s",
            *(f"{number:.1f}" for number in numbers),
        )
    console.print(table)


if __name__ == "__main__":
    main()
