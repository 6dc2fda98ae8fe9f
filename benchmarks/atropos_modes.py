"""`mortal atropos` in its three modes, one after the other, against Atropos' API server and an
environment of its: the times that --benchmark prints, side by side.

    python -m benchmarks.atropos_modes [--engine vllm]
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.output import folder_for
from mortal.terminal.bridge_times import memory, stage_times
from mortal_steps.report.markdown import table
from mortal_steps.runs.run import find_run
from tests.support.atropos.modes import MODES, arguments
from tests.support.atropos.peer import free_ports, has_atropos, make_model, real_peer
from tests.support.paths import VLLM_PYTHON

WINDOW = 8
"""Steps at either end of a run whose rewards are averaged."""


def measure(mode: str, engine: tuple[str, ...], folder: Path) -> dict[str, str]:
    """Return a row of the table."""
    make_model(folder / "model")
    (port,) = free_ports(1)
    began = time.monotonic()
    with real_peer(folder / "model", folder, policy_port=port) as url:
        command = [sys.executable, "-m", "mortal", *arguments(url, port, mode, mode, engine)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    took, run = time.monotonic() - began, find_run(folder / "runs", mode)
    times = stage_times(run)
    rewards = [row["reward"] for row in run.metrics()]
    size = sum(file.stat().st_size for file in run.store.path("final").glob("*.safetensors"))
    first, last = statistics.mean(rewards[:WINDOW]), statistics.mean(rewards[-WINDOW:])
    return {
        "mode": mode,
        "steps": str(len(rewards)),
        "step": f"{statistics.mean(times['step']):.2f} s",
        "sync": f"{statistics.mean(times['sync']):.3f} s x {len(times['sync'])}",
        "data fetch": f"{statistics.mean(times['data fetch']):.2f} s",
        "in all": f"{took:.0f} s",
        "actor's memory": f"{max(memory(run)['resident']):.2f} GB",
        "final model": f"{size / 1e6:.2f} MB",
        "reward": f"{first:.3f} -> {last:.3f}",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    chosen = parser.parse_args().engine
    if not has_atropos():
        sys.exit("no interpreter with atroposlib; `make atropos-env` makes one")
    engine: tuple[str, ...] = ("--engine", chosen)
    if chosen == "vllm":
        engine = (*engine, "--vllm-python", str(VLLM_PYTHON))
    rows = []
    for mode in MODES:
        with folder_for("atropos-modes") as folder:
            os.environ["MORTAL_STATE_DIR"] = str(folder / "state")
            rows.append(measure(mode, engine, folder))
    print(table(list(rows[0]), [list(row.values()) for row in rows], "l" * len(rows[0])))


if __name__ == "__main__":
    main()
