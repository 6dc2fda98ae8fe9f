"""From `kill -9` of a rollout worker to the first token of the one that takes its place.

    python -m benchmarks.engine_restart                        # vllm and transformers, 5 times each
    python -m benchmarks.engine_restart --engines vllm --rounds 3

A worker with vLLM is an interpreter of its own; one with transformers is forked from a process with
its imports where there is no GPU. After each kill the worker builds its engine, reads a published
version, proves it by the canary, and samples a shard of one completion with one token; the shards
of all workers have to be the same bits. CPU seconds are those of the new worker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.config import RolloutConfig, RunConfig
from mortal_steps.config.engines import ENGINES
from mortal_steps.errors import WorkerLostError
from mortal_steps.store import RunStore
from mortal_steps.types import GenerateRequest, GenerationRef, Problem, SamplingParams
from tests.support.paths import VLLM_PYTHON
from tests.support.rollout.tiny_model import build_tiny_model, publish

KEY = "generate/0/0"
WORKER = "rollout-0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Return:
    """One worker's way back."""

    engine: str
    wall_s: float
    """From the kill to the first token."""
    cpu_s: float
    sha256: str
    """Of the shard."""


class Rollouts:
    """One rollout worker of a kind, and what it is asked for."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = engine
        model = build_tiny_model(folder / "model", seed=1)
        store = RunStore(folder / "run")
        problems = [Problem(id="train-0", prompt="0abc=>")]
        self._request = GenerateRequest(
            stage="generate",
            step=0,
            shard=0,
            problems=store.write_record("batch.json", problems, list[Problem]),
            start=0,
            stop=1,
            num_generations=1,
            sampling=SamplingParams(max_tokens=1),
            weights=publish(store, 0, model),
            output="",
        )
        spec = WorkerSpec(
            factory="mortal_steps.rollout.worker:RolloutWorker",
            kwargs={
                "run_dir": str(store.root),
                "config": RunConfig(rollout=RolloutConfig(engine=engine)),
                "model_path": str(model),
            },
            prepare="start",
            python=str(VLLM_PYTHON) if engine == "vllm" else None,
            preload=ENGINES.entry(engine).preload,
            env={"HF_HUB_OFFLINE": "1"},
        )
        self._compute = LocalCompute({"rollout": spec}, working_dir=folder, log_dir=folder)
        self._number = 0

    async def sample(self) -> GenerationRef:
        """The shard, as a new file."""
        self._number += 1
        request = replace(self._request, output=f"shard-{self._number}.json")
        found: GenerationRef = await self._compute.call(
            "rollout", "generate", key=KEY, request=request
        )
        return found

    async def come_back(self) -> Return:
        """Kill the worker, and wait for the first token of the next."""
        await self.sample()
        killed = psutil.Process(self._compute.processes()[WORKER])
        began = time.perf_counter()
        os.kill(killed.pid, signal.SIGKILL)
        while True:
            try:
                reference = await self.sample()
                break
            except WorkerLostError:
                continue
        wall_s = time.perf_counter() - began
        worker = psutil.Process(self._compute.processes()[WORKER])
        assert worker.pid != killed.pid
        times = worker.cpu_times()
        return Return(
            engine=self.engine,
            wall_s=wall_s,
            cpu_s=times.user + times.system,
            sha256=reference.file.sha256,
        )

    async def close(self) -> None:
        """End the worker."""
        await self._compute.close()


def main() -> None:
    """Measure in turn, print the table, write the results."""
    args = _parse()
    with tempfile.TemporaryDirectory(prefix="engine-restart-") as folder:
        returns = asyncio.run(_measure(args.engines, args.rounds, Path(folder)))
    _print_report(returns)
    write_results(args.output, {"returns": returns})
    for engine in args.engines:
        if len({each.sha256 for each in returns if each.engine == engine}) > 1:
            raise SystemExit(f"{engine}: workers that came back sampled other bits")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_restart")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=5)
    add_output_option(parser, "engine_restart")
    return parser.parse_args()


async def _measure(engines: Sequence[str], rounds: int, folder: Path) -> list[Return]:
    returns = []
    for engine in engines:
        (folder / engine).mkdir()
        rollouts = Rollouts(engine, folder / engine)
        try:
            for _ in range(rounds):
                returns.append(await rollouts.come_back())
                console.print(_line(returns[-1]))
        finally:
            await rollouts.close()
    return returns


def _line(found: Return) -> str:
    return f"{found.engine}: {found.wall_s:.2f} s, {found.cpu_s:.2f} s of CPU"


def _print_report(returns: Sequence[Return]) -> None:
    table = results_table(
        "From kill -9 of a rollout worker to the first token of the next",
        *("engine", "CPU, least", "CPU, median", "wall, least", "wall, median"),
        left=("engine",),
    )
    for engine in dict.fromkeys(each.engine for each in returns):
        of = [each for each in returns if each.engine == engine]
        cpu, wall = [each.cpu_s for each in of], [each.wall_s for each in of]
        cells = min(cpu), statistics.median(cpu), min(wall), statistics.median(wall)
        table.add_row(engine, *(f"{seconds:.2f} s" for seconds in cells))
    console.print(table)


if __name__ == "__main__":
    main()
