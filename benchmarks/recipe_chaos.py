"""Kill a recipe in its stages and between them: does each stage end with the same bits?

    python -m benchmarks.recipe_chaos                  # 20 kills in each of the four places
    python -m benchmarks.recipe_chaos --kills 8 --seed 3

The tiny recipe of the tests (sft, a reward model, GRPO with it, a gate) is run undisturbed. Then it
is begun again and again in other folders, and killed at moments that are drawn: the process that
drives the recipe, that of the stage, both at once, or the Prefect server, which comes back. Exits
with 1 if a stage ends with other bits, a step is doubled or lost, or a flow run stays Running.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.output import add_output_option, console, results_table, write_results
from mortal.driver import QUIET_PREFECT
from mortal_steps.errors import MortalError
from mortal_steps.runs.run import find_run
from tests.support.chaos.server import KillableServer
from tests.support.whole_recipe import (
    digests,
    kill_recipe,
    kill_stage,
    left_running,
    record_of,
    write_recipe,
)

WHOM = ("recipe", "stage", "both", "server")
STEPS = {"sft": 24, "rm": 12, "grpo": 4}
PER_RECIPE = 4
"""Kills of one recipe: one in each stage and one between two, in the mean."""
PATIENCE_S = 600.0
AWAY_S = 3.0


class Broken(Exception):
    """The recipe did not do what it has to."""


def main() -> None:
    args = _parse()
    os.environ.update(QUIET_PREFECT, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    drawn = random.Random(args.seed)
    killed: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="recipe-chaos-") as folder:
        server = KillableServer(Path(folder))
        server.start()
        try:
            wanted = _undisturbed(Path(folder) / "undisturbed", server)
            _say(f"undisturbed: {wanted}")
            number = 0
            while sum(killed.values()) < args.kills * len(WHOM):
                number += 1
                try:
                    found = _under_fire(Path(folder) / f"fire-{number}", server, drawn, killed)
                    same = found == wanted
                    left = left_running(server.api_url)
                    _say(f"recipe {number}: {'same bits' if same else found}, left: {left}")
                    faults += [] if same else [f"recipe {number} has {found}"]
                    faults += [f"recipe {number} left {left} running"] if left else []
                except Broken as error:
                    faults.append(f"recipe {number}: {error}")
                    _say(f"BROKEN {faults[-1]}")
        finally:
            server.wait()
            server.kill()
    table = results_table("kills", "killed, in", "times", left=("killed, in",))
    for place, times in sorted(killed.items()):
        table.add_row(place, str(times))
    console.print(table)
    results: dict[str, Any] = {"seed": args.seed, "recipes": number, "faults": faults}
    write_results(args.output, {**results, "kills": dict(killed)})
    for fault in faults:
        _say(fault)
    sys.exit(1 if faults else 0)


def _undisturbed(folder: Path, server: KillableServer) -> dict[str, str | None]:
    folder.mkdir()
    write_recipe(folder)
    said, _ = (process := _start(folder, server, "train", "words.toml")).communicate()
    if process.returncode:
        raise Broken(said)
    return digests(folder)


def _start(folder: Path, server: KillableServer, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mortal", *arguments],
        cwd=folder,
        env={**os.environ, "PREFECT_API_URL": server.api_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _under_fire(
    folder: Path, server: KillableServer, drawn: random.Random, killed: Counter[str]
) -> dict[str, str | None]:
    """Run a recipe to its end through some kills; return the digests of its stages."""
    folder.mkdir()
    write_recipe(folder)
    command = ("train", "words.toml")
    for _ in range(PER_RECIPE):
        process = _start(folder, server, *command)
        command = ("resume", "words")
        stage, step = drawn.choice(["sft", "rm", "grpo", "gate", "between"]), 0
        if stage in STEPS:
            step = drawn.randrange(STEPS[stage])
        whom = drawn.choice(WHOM)
        if not _reached(folder, stage, step, process):
            break  # it has come to its end before
        time.sleep(drawn.random() * 1.5)
        _kill(folder, server, whom)
        killed[f"{whom}, {stage}"] += 1
        if whom == "server":
            time.sleep(AWAY_S)
            server.come_back()
            server.wait()
        process.communicate(timeout=PATIENCE_S)
    for _ in range(3):  # a stage that was killed alone ends the recipe, too
        process = _start(folder, server, *command)
        said, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode == 0:
            return digests(folder)
        command = ("resume", "words")
    raise Broken(f"does not come to its end: {said}")


def _reached(folder: Path, stage: str, step: int, process: subprocess.Popen[str]) -> bool:
    """Wait until the recipe is there; False if its process ends before."""
    deadline = time.monotonic() + PATIENCE_S
    complete = _complete(folder)
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise Broken(f"hangs before {stage} {step}")
        if stage == "between" and _complete(folder) > complete:
            return True
        if stage != "between" and _is_at(folder, stage, step):
            return True
        time.sleep(0.02)
    return False


def _complete(folder: Path) -> int:
    record = record_of(folder)
    standings = [each.standing for each in record.stages.values()] if record else []
    return standings.count("complete")


def _is_at(folder: Path, stage: str, step: int) -> bool:
    record = record_of(folder)
    each = record.stages.get(stage) if record else None
    if each is None or each.standing not in ("running", "complete"):
        return False
    if stage == "gate" or each.standing == "complete":
        return True
    try:
        return find_run(folder / "runs", str(each.job_id)).manifest.step >= step
    except MortalError:  # it has not begun
        return False


def _kill(folder: Path, server: KillableServer, whom: str) -> None:
    if whom == "server":
        server.kill()
        return
    if whom in ("stage", "both"):
        record = record_of(folder)
        assert record is not None
        for stage, each in record.stages.items():
            if each.standing == "running" and each.kind == "train":
                _try(kill_stage, folder, stage)
    if whom in ("recipe", "both"):
        _try(kill_recipe, folder)


def _try(kill: Callable[..., None], *given: Any) -> None:
    """Kill a process that may just have ended, or not have begun."""
    with contextlib.suppress(MortalError, ProcessLookupError, AssertionError):
        kill(*given)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recipe_chaos", description="A recipe killed in its stages."
    )
    parser.add_argument("--kills", type=int, default=20, help="of each of four kinds, in the mean")
    parser.add_argument("--seed", type=int, default=0)
    add_output_option(parser, "recipe_chaos")
    return parser.parse_args()


def _say(line: str) -> None:
    console.print(line, highlight=False)


if __name__ == "__main__":
    main()
