"""What a train step of the demo's model costs with TRL's buffer for logits as wide as TRL makes it,
and as wide as the vocabulary.

    python -m benchmarks.logit_tiles
    python -m benchmarks.logit_tiles --steps 100

One trainer, in a process with the environment of a worker, takes made-up batches of the demo's size
with either width in turn. CPU time and page faults are of that process; the lowest tenth of the
times counts, since other load only adds to it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT
from benchmarks.output import add_output_option, console, results_table, write_results
from benchmarks.vs_trl.start import starting_model
from mortal_steps.compute.local_container import ENVIRONMENT

DEMO = ROOT / "deployments/configs/demo.toml"
WARM_UP = 4
WIDTHS = ("as TRL", "as the vocabulary")


def main() -> None:
    args = _parse()
    os.chdir(ROOT)
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.update(ENVIRONMENT | offline)
    with tempfile.TemporaryDirectory(prefix="logit-tiles-") as folder:
        model = starting_model(DEMO, [f"runs_dir={folder}"])
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as process:
            steps = process.submit(measure, model, args.steps, folder).result()
    table = results_table("a train step of the actor", "buffer", "CPU", "page faults", left=WIDTHS)
    costs = {width: _cost(steps, width) for width in WIDTHS}
    for width, (cpu_ms, faults) in costs.items():
        table.add_row(width, f"{cpu_ms:.1f} ms", f"{faults:,.0f}")
    console.print(table)
    wide, narrow = (costs[width][0] for width in WIDTHS)
    console.print(f"{narrow / wide:.2f} times the CPU time")
    write_results(args.output, {"steps": steps})


def measure(model: str, num_steps: int, folder: str) -> list[tuple[str, float, int]]:
    """Width, CPU time in ms and page faults of each step."""
    from mortal_steps.policy.algorithms.grpo import GRPO
    from mortal_steps.policy.algorithms.stepping import logit_tiles
    from mortal_steps.policy.algorithms.stepping import stepper as trained
    from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper
    from tests.support.policy.rollouts import make_batch, make_config

    logging.disable(logging.WARNING)  # TRL names each made-up completion without a score
    config = make_config(batch_size=16, num_generations=16)
    stepper = TrlStepper(
        GRPO(), config, model_path=model, num_steps=num_steps, output_dir=Path(folder) / "out"
    )
    stepper.begin()
    ways: dict[str, Any] = dict(
        zip(WIDTHS, (lambda model: contextlib.nullcontext(), logit_tiles.narrow_tiles), strict=True)
    )
    steps = []
    for step in range(num_steps):
        width = WIDTHS[step % 2]
        batch = make_batch(config, step)
        vars(trained)["narrow_tiles"] = ways[width]
        cpu, faults = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        stepper.train_step(batch, seed=step)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        steps.append((width, 1e3 * (time.thread_time() - cpu), faults))
    return steps[WARM_UP:]


def _cost(steps: list[tuple[str, float, int]], width: str) -> tuple[float, float]:
    """The lowest tenth of the CPU times, and the median of the page faults."""
    cpu = sorted(cpu_ms for name, cpu_ms, _ in steps if name == width)
    return cpu[len(cpu) // 10], statistics.median(n for name, _, n in steps if name == width)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.logit_tiles",
        description="A train step with TRL's buffer for logits in two widths.",
    )
    parser.add_argument("--steps", type=int, default=60)
    add_output_option(parser, "logit_tiles")
    args = parser.parse_args()
    if args.steps < 2 * WARM_UP:
        parser.error(f"--steps must be at least {2 * WARM_UP}: the first {WARM_UP} are warm-up")
    return args


if __name__ == "__main__":
    main()
