"""Several reward workers and processes: whatever is killed, the scores are the same bits."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.config import RewardsConfig
from mortal_steps.errors import WorkerLostError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.store import RunStore
from mortal_steps.types import RewardedShard, RewardRef, RewardRequest
from tests.support.rewards.shards import make_request, make_shard

SOURCE = """
import os
import time
from pathlib import Path


def slow(completions, log_metric, log_extra, **kwargs):
    Path(f"in-{os.getpid()}").touch()
    time.sleep(0.15)
    log_extra("text", completions)
    log_metric("longest", max(map(len, completions)))
    return [len(text) / 3 for text in completions]
"""
TEXTS = [("a", "bbbbb"), ("cc", "dddd"), ("eee", "f")]
NUM_SHARDS = 4
KEY = "reward/4/0"
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(SOURCE)


def config(processes: int) -> RunConfig:
    term = {"function": "rewards.py:slow", "calls": "problem", "processes": processes}
    return RunConfig(rewards=RewardsConfig.model_validate({"terms": [term]}))


def compute(tmp_path: Path, num_workers: int, processes: int) -> LocalCompute:
    kwargs = {"run_dir": "run", "plan": Plan(config(processes)).scoring, "num_steps": 1}
    spec = WorkerSpec(
        factory="mortal_steps.rewards.worker:RewardWorker",
        kwargs=kwargs,
        count=num_workers,
        prepare="start",
    )
    return LocalCompute({"reward": spec}, working_dir=tmp_path, log_dir=tmp_path)


def requests(folder: str) -> list[RewardRequest]:
    store = RunStore(Path("run"))
    shards = [make_shard(*texts_of(number), number=number) for number in range(NUM_SHARDS)]
    return [
        make_request(store, shard, output=f"{folder}/rewards-{number}.parquet")
        for number, shard in enumerate(shards)
    ]


async def scored(workers: LocalCompute, asked: Sequence[RewardRequest]) -> list[RewardRef]:
    """All shards, each asked for again if its worker is lost."""

    async def score(request: RewardRequest) -> RewardRef:
        while True:
            try:
                ref: RewardRef = await workers.call("reward", "reward", key=KEY, request=request)
                return ref
            except WorkerLostError:
                continue

    return await asyncio.gather(*map(score, asked))


async def in_function(*seen: int) -> int:
    """A host that calls the slow function now, other than those seen."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for file in Path().glob("in-*"):
            pid = int(file.name.removeprefix("in-"))
            if pid not in seen and Path(f"/proc/{pid}").exists():
                file.unlink(missing_ok=True)
                return pid
        await asyncio.sleep(0.005)
    raise AssertionError("nobody scores")


def texts_of(number: int) -> list[tuple[str, ...]]:
    """The completions of a shard, by problem."""
    return [tuple(text * (number + 1) for text in texts) for texts in TEXTS]


def expected(number: int) -> tuple[Any, ...]:
    """What is said of a shard to which nothing happens."""
    texts = texts_of(number)
    return (
        [[{"slow": len(text) / 3} for text in problem] for problem in texts],
        {"longest": sum(max(map(len, problem)) for problem in texts) / len(texts)},
        {"text": [text for problem in texts for text in problem]},
        (),
    )


async def test_kills_of_hosts_and_workers_in_mid_shard_change_no_score(tmp_path: Path) -> None:
    workers = compute(tmp_path, num_workers=2, processes=2)
    await workers.start("reward")
    scoring = asyncio.create_task(scored(workers, requests("killed")))
    first = await in_function()
    os.kill(first, signal.SIGKILL)
    await in_function(first)
    os.kill(next(iter(workers.processes().values())), signal.SIGKILL)
    refs = await scoring
    store = RunStore(Path("run"))
    for number, ref in enumerate(refs):
        found = store.read_record(ref.file, RewardedShard)
        assert (found.rewards, found.metrics, found.extra, found.failures) == expected(number)
    assert sum(ref.failed_calls.get("slow", 0) for ref in refs) <= 1
    await workers.close()


async def test_processes_of_a_term_score_problems_at_the_same_time(tmp_path: Path) -> None:
    """Each of three problems waits until another one is being scored."""
    (tmp_path / "rewards.py").write_text(
        "import time\nfrom pathlib import Path\n\n"
        "def slow(completions, **kwargs):\n"
        "    Path(f'met-{completions[0]}').touch()\n"
        "    while len(list(Path().glob('met-*'))) < 2:\n"
        "        time.sleep(0.01)\n"
        "    return [1.0 for _ in completions]\n"
    )
    workers = compute(tmp_path, num_workers=1, processes=2)
    (ref,) = await scored(workers, requests("together")[:1])
    assert (ref.num_scored, ref.failed_calls) == (6, {})
    await workers.close()
