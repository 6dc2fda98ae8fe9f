"""A step's completions scored by a plain function that waits for each: what runs beside what.

    python -m benchmarks.parallel_rewards
    python -m benchmarks.parallel_rewards --problems 16 --wait-ms 20

The ways take turns, round by round. Workers and processes are up before the clock starts, and every
way has to give the same scores.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.config import RunConfig
from mortal_steps.store import RunStore
from mortal_steps.types import (
    Completion,
    GeneratedGroup,
    GeneratedShard,
    GenerationRef,
    PolicyVersion,
    Problem,
    RewardedShard,
    RewardRef,
    RewardRequest,
    StageTiming,
)

GENERATIONS = 8
SOURCE = """
import time


def waits(completions, **kwargs):
    time.sleep({wait_s} * len(completions))
    return [float(len(text)) for text in completions]
"""
VERSION = PolicyVersion(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How a step is scored."""

    name: str
    shards: int
    workers: int
    processes: int | None = None
    """Of the function, which is then called by problem."""

    def config(self) -> RunConfig:
        """The rewards of a run that is scored in this way."""
        term: dict[str, Any] = {"type": "function", "function": "rewards.py:waits"}
        if self.processes is not None:
            term |= {"calls": "problem", "processes": self.processes}
        rewards = {"terms": [term], "num_reward_workers": self.workers, "timeout_s": 600.0}
        return RunConfig.model_validate({"rewards": rewards})


WAYS = (
    Way(name="one worker", shards=2, workers=1),
    Way(name="a worker for each of 2 shards", shards=2, workers=2),
    Way(name="a worker for each of 4 shards", shards=4, workers=4),
    Way(name="by problem, 8 processes", shards=2, workers=1, processes=8),
    Way(name="by problem, 8 processes, 2 workers", shards=2, workers=2, processes=8),
)


def shard_of(problems: Sequence[int], number: int) -> GeneratedShard:
    """Made-up completions of some problems."""
    groups = [
        GeneratedGroup(
            problem=Problem(id=f"train-{problem}", prompt="?", columns={}),
            prompt_ids=[1],
            completions=[_completion("x" * (problem + one)) for one in range(GENERATIONS)],
        )
        for problem in problems
    ]
    return GeneratedShard(step=0, shard=number, policy_version=VERSION, groups=groups)


def _completion(text: str) -> Completion:
    return Completion(
        token_ids=[1],
        logprobs=[0.0],
        text=text,
        finish_reason="stop",
        seed=0,
        policy_version=VERSION,
    )


def request_for(store: RunStore, shard: GeneratedShard, output: str) -> RewardRequest:
    """The shard is committed."""
    generation = GenerationRef(
        step=0,
        shard=shard.shard,
        file=store.write_record(f"{output}/generations.parquet", shard, GeneratedShard),
        num_completions=len(shard.groups) * GENERATIONS,
        num_tokens=0,
        policy_version=VERSION,
        timing=StageTiming(stage="generate", step=0),
    )
    return RewardRequest(stage="reward", generation=generation, output=f"{output}/rewards.parquet")


async def measure(way: Way, folder: Path, num_problems: int) -> tuple[float, list[object]]:
    """Seconds from the first request to the last answer, and the scores."""
    store = RunStore(folder / "run")
    spec = WorkerSpec(
        factory="mortal_steps.rewards.worker:RewardWorker",
        kwargs={"run_dir": str(store.root), "config": way.config(), "num_steps": 1},
        count=way.workers,
        prepare="start",
    )
    compute = LocalCompute({"reward": spec}, working_dir=folder, log_dir=folder)

    async def score(problems: Sequence[int], number: int, name: str) -> RewardRef:
        output = f"{name}/{number}"
        request = request_for(store, shard_of(problems, number), output)
        key = f"reward/0/{number}"
        ref: RewardRef = await compute.call("reward", "reward", key=key, request=request)
        return ref

    try:
        await compute.start("reward")
        while len(compute.ready_workers("reward")) < way.workers:
            await asyncio.sleep(0.01)
        size = num_problems // way.shards
        warm = range(way.processes or 1)  # so that each process has been asked
        await asyncio.gather(*(score(warm, number, "warm") for number in range(way.workers)))
        began = time.perf_counter()
        refs = await asyncio.gather(
            *(
                score(range(number * size, (number + 1) * size), number, "step")
                for number in range(way.shards)
            )
        )
        took = time.perf_counter() - began
    finally:
        await compute.close()
    shards = [store.read_record(ref.file, RewardedShard) for ref in refs]
    return took, [group for shard in shards for group in shard.rewards]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--wait-ms", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=2)
    add_output_option(parser, "parallel_rewards")
    args = parser.parse_args()
    times: dict[str, list[float]] = {way.name: [] for way in WAYS}
    scores = []
    for _ in range(args.rounds):
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="mortal-") as folder:
                source = SOURCE.format(wait_s=args.wait_ms / 1000)
                (Path(folder) / "rewards.py").write_text(source)
                took, found = asyncio.run(measure(way, Path(folder), args.problems))
            times[way.name].append(took)
            scores.append(found)
    assert all(found == scores[0] for found in scores)
    completions = args.problems * GENERATIONS
    show(f"{completions} completions, {args.wait_ms:g} ms each", times)
    seconds = {name: statistics.median(taken) for name, taken in times.items()}
    write_results(
        args.output, {"completions": completions, "wait_ms": args.wait_ms, "seconds": seconds}
    )


def show(title: str, times: dict[str, list[float]]) -> None:
    """As a table."""
    table = results_table(title, "", "shards", "seconds", "times as fast", left=("",))
    first = statistics.median(times[WAYS[0].name])
    for way in WAYS:
        took = statistics.median(times[way.name])
        table.add_row(way.name, str(way.shards), f"{took:.2f}", f"{first / took:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
