"""What models write and what rows hold: it is kept as it is, and never run."""

from pathlib import Path

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.store import RunStore
from mortal_steps.types import Problem, RewardedShard
from tests.support.rewards import failing
from tests.support.rewards.shards import make_request, make_shard

STRANGE = '"\\ud83d\\u0000\\u001b[2J' + "x" * 400_000 + ' raise"'


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_whatever_a_model_writes_can_be_kept(tmp_path: Path) -> None:
    """Half of a surrogate pair, NUL, a terminal's escape, 400,000 characters: in a message, in the
    name of a metric, in a column."""
    store = RunStore(tmp_path / "run")
    functions = (f"{failing.__file__}:speaks_strangely",)
    rewards = RewardsConfig(functions=functions, retries=0, on_error="mask")
    worker = RewardWorker(run_dir="run", plan=Plan(RunConfig(rewards=rewards)).scoring, num_steps=1)
    calm = STRANGE.replace("raise", "calm")
    request = make_request(store, make_shard((STRANGE, STRANGE), (calm, calm)))
    try:
        ref = worker.reward(request=request)
    finally:
        worker.close()
    rewarded = store.read_record(ref.file, RewardedShard)
    (failure,) = rewarded.failures
    assert failure.problem_id == "train-0"
    assert failure.message.startswith(r"raised ValueError: \ud83d\x00\x1b[2Jxxx")
    assert [list(scores[0].values()) for scores in rewarded.rewards] == [[None], [400_011.0]]
    assert all(name.isprintable() and len(name) <= 200 for name in rewarded.metrics)
    (said,) = (name for name in rewarded.extra if name.startswith("said"))
    assert all(value is None or len(value) < 100_010 for value in rewarded.extra[said])
    assert set(rewarded.extra["number"]) == {None}


def test_rows_from_elsewhere_are_no_rows_of_reasoning_gym() -> None:
    """Their verifiers would run what the rows hold."""
    entry = {"metadata": {"problem": "open('ran', 'w').close()"}, "answer": "0x1"}
    columns = {
        "source_dataset": "bitwise_arithmetic",
        "task_options": {},
        "entry": repr(entry),
    }
    problem = Problem(id="train-0", prompt="1 + 1 =", columns=columns)
    for functions in (
        ("mortal.rewards.functions:reasoning_gym_score",),
        (f"{failing.__file__}:trusts_gym_rows",),
    ):
        config = RunConfig(rewards={"functions": functions}, data={"source": "rows.jsonl"})
        worker = RewardWorker(run_dir="run", plan=Plan(config).scoring, num_steps=1)
        with pytest.raises(RewardError, match="reasoning_gym"):
            worker.dry_run(problems=[problem])
        worker.close()
    assert not Path("ran").exists()
