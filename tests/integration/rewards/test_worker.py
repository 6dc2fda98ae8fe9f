"""mortal_steps.rewards.worker: shards scored once, committed, reused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.config import RewardsConfig, TrainingConfig
from mortal_steps.errors import CorruptFileError, RewardError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.store import RunStore
from mortal_steps.types import (
    Problem,
    RewardedShard,
    RewardFailure,
)
from tests.support.refused import refused
from tests.support.rewards.shards import make_request, make_shard

SOURCE = """
from pathlib import Path

def counted(completions, answer, trainer_state, log_metric, log_extra, **kwargs):
    with open("calls", "a") as calls:
        calls.write(f"{trainer_state.global_step} {trainer_state.max_steps}\\n")
    log_metric("mean_length", sum(map(len, completions)) / len(completions))
    log_extra("length", [len(text) for text in completions])
    return [float(text == right) for text, right in zip(completions, answer)]

async def if_long(completions, **kwargs):
    return [1.0 if len(text) > 2 else None for text in completions]

def never(completions, **kwargs):
    return [None for _ in completions]

def not_odd(completions, **kwargs):
    if "odd" in completions:
        raise ValueError("odd")
    return [1.0 for _ in completions]

def broken(completions, **kwargs):
    return [1.0 / 0.0 for _ in completions]

def strips(completions, **kwargs):
    return [float(text.strip() == "a") for text in completions]
"""


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rewards.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "run")


@pytest.fixture
def make_worker() -> Iterator[Callable[..., RewardWorker]]:
    """Makes workers of some of the functions, with further options of `[rewards]`."""
    made: list[RewardWorker] = []

    def make(*names: str, judges: tuple[str, ...] = (), **options: Any) -> RewardWorker:
        functions = tuple(f"my_rewards.py:{name}" for name in names)
        evaluation = [f"my_rewards.py:{name}" for name in judges]
        config = RunConfig(
            evaluation={"functions": evaluation} if judges else {},
            rewards=RewardsConfig(functions=functions, **{"retries": 0, **options}),
            training=TrainingConfig(batch_size=2, num_generations=2, num_iterations=3),
        )
        made.append(RewardWorker(run_dir="run", plan=Plan(config).scoring, num_steps=10))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def calls() -> list[str]:
    path = Path("calls")
    return path.read_text().splitlines() if path.exists() else []


def test_scores_are_committed_beside_their_generations(store: RunStore, make_worker: Any) -> None:
    request = make_request(store, make_shard(("ba", "b"), ("abc", "baba")))
    ref = make_worker("counted", "if_long", weights=(1.0, 0.5)).reward(request=request)
    rewarded = store.read_record(ref.file, RewardedShard)
    assert rewarded == RewardedShard(
        step=4,
        shard=0,
        generation_sha256=request.generation.file.sha256,
        rewards=[
            [{"counted": 1.0, "if_long": None}, {"counted": 0.0, "if_long": None}],
            [{"counted": 0.0, "if_long": 1.0}, {"counted": 0.0, "if_long": 1.0}],
        ],
        metrics={"mean_length": 2.5},
        extra={"length": [2, 1, 3, 4]},
    )
    assert (ref.reward_sum, ref.num_scored) == (2.0, 4)
    assert ref.generation == request.generation
    assert (ref.timing.stage, ref.timing.step, ref.timing.index) == ("reward", 4, 0)
    assert ref.timing.busy_s > 0
    assert set(ref.timing.functions) == {"counted", "if_long"}
    assert 0 < sum(ref.timing.functions.values()) < ref.timing.busy_s


def test_trainer_state_counts_optimizer_updates(store: RunStore, make_worker: Any) -> None:
    make_worker("counted").reward(request=make_request(store, make_shard(("a", "b"))))
    assert calls() == ["12 30"]  # step 4 of 10, with num_iterations = 3


def test_where_every_function_abstains_nothing_is_scored(store: RunStore, make_worker: Any) -> None:
    request = make_request(store, make_shard(("ba", "b")), stage="evaluate")
    ref = make_worker("never", "if_long").reward(request=request)
    assert (ref.reward_sum, ref.num_scored) == (0.0, 0)
    assert ref.timing.stage == "evaluate"


def test_evaluations_may_be_scored_by_other_functions(store: RunStore, make_worker: Any) -> None:
    shard = make_shard(("ba", "b"), ("abc", "baba"))
    worker = make_worker("counted", judges=("if_long",), weights=(3.0,))
    trained = worker.reward(request=make_request(store, shard))
    judged = worker.reward(
        request=make_request(store, shard, stage="evaluate", output="rewards-1.parquet")
    )
    rewards = store.read_record(judged.file, RewardedShard).rewards
    assert {name for group in rewards for scores in group for name in scores} == {"if_long"}
    assert (judged.reward_sum, judged.num_scored) == (2.0, 2)
    assert (trained.reward_sum, trained.num_scored) == (3.0, 4)


def test_functions_that_score_evaluations_are_called_in_the_dry_run_too(make_worker: Any) -> None:
    problem = Problem(id="1", prompt="ab=", columns={"answer": "ba"})
    with pytest.raises(RewardError, match=r"(?s)'broken'.*This was the dry run"):
        make_worker("never", judges=("broken",)).dry_run(problems=[problem])


def test_a_committed_score_is_the_answer(store: RunStore, make_worker: Any) -> None:
    request = make_request(store, make_shard(("ba", "b")))
    first = make_worker("counted").reward(request=request)
    again = make_worker("counted").reward(request=request)
    assert again.file == first.file
    assert (again.reward_sum, again.num_scored) == (first.reward_sum, first.num_scored)
    assert len(calls()) == 1


def of_other_generations(store: RunStore, path: Path) -> None:
    stale = store.find_record("rewards-0.parquet", RewardedShard)
    assert stale is not None
    other = RewardedShard(step=4, shard=0, generation_sha256="0" * 64, rewards=stale[1].rewards)
    store.write_record("rewards-0.parquet", other, RewardedShard)


def cut_short(store: RunStore, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(store: RunStore, path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [of_other_generations, cut_short, empty])
def test_what_is_no_whole_score_of_these_generations_is_scored_again(
    store: RunStore, spoil: Callable[[RunStore, Path], None], make_worker: Any
) -> None:
    request = make_request(store, make_shard(("ba", "b")))
    first = make_worker("counted").reward(request=request)
    spoil(store, store.path("rewards-0.parquet"))
    again = make_worker("counted").reward(request=request)
    assert again.file == first.file
    assert len(calls()) == 2


def test_damaged_generations_are_never_scored(store: RunStore, make_worker: Any) -> None:
    request = make_request(store, make_shard(("ba", "b")))
    store.path("generations-0.parquet").write_bytes(b"{}\n")
    with pytest.raises(CorruptFileError, match=r"generations-0\.parquet"):
        make_worker("counted").reward(request=request)
    assert not store.path("rewards-0.parquet").exists()


def test_a_failure_commits_nothing(store: RunStore, make_worker: Any) -> None:
    request = make_request(store, make_shard(("ba", "b")))
    with refused(RewardError, "'broken'", "ZeroDivisionError"):
        make_worker("counted", "broken").reward(request=request)
    assert not store.path("rewards-0.parquet").exists()


def problems(count: int) -> list[Problem]:
    return [Problem(id=f"train-{i}", prompt="ab=", columns={"answer": "ba"}) for i in range(count)]


def test_a_dry_run_finds_what_is_broken(store: RunStore, make_worker: Any) -> None:
    make_worker("counted", "if_long").dry_run(problems=problems(3))
    assert calls() == ["0 30"]
    assert not store.root.exists()
    with refused(RewardError, "'broken'", "ZeroDivisionError") as caught:
        make_worker("broken").dry_run(problems=problems(1))
    failed, explained, *trace = str(caught.value).splitlines()
    assert failed.startswith("reward function 'broken' raised")
    assert "This was the dry run" in explained and "rewards.dry_run = false" in explained
    assert (
        "once on the text 'a made-up completion', as an answer to the prompt of train-0"
        in explained
    )
    assert trace[0] == "Traceback (most recent call last):"


def test_a_dry_run_says_what_it_has_called_functions_of_chats_on(make_worker: Any) -> None:
    chats = [replace(each, prompt=[{"role": "user", "content": "ab="}]) for each in problems(1)]
    with pytest.raises(RewardError, match=r"completion\[0\]\['content'\]") as caught:
        make_worker("strips").dry_run(problems=chats)
    said = "called once on the messages [{'role': 'assistant', 'content': 'a made-up completion'}]"
    assert said in str(caught.value)


def test_a_dry_run_without_problems_imports_alone(make_worker: Any) -> None:
    make_worker("counted", "broken").dry_run(problems=[])
    assert calls() == []
    with refused(RewardError, "mean broken"):
        make_worker("brokn").dry_run(problems=[])
    with refused(RewardError, "mean broken"):
        make_worker("brokn").start()


def test_the_same_function_twice_is_refused(make_worker: Any) -> None:
    with refused(RewardError, "'my_rewards.py:never'", "twice"):
        make_worker("never", "never").start()


def test_functions_of_one_name_go_by_their_whole_spec(store: RunStore, tmp_path: Any) -> None:
    (tmp_path / "other.py").write_text(SOURCE)
    functions = ("my_rewards.py:never", "other.py:never")
    config = RunConfig(rewards=RewardsConfig(functions=functions))
    worker = RewardWorker(run_dir="run", plan=Plan(config).scoring, num_steps=1)
    ref = worker.reward(request=make_request(store, make_shard(("a",))))
    worker.close()
    rewarded = store.read_record(ref.file, RewardedShard)
    assert rewarded.rewards == [[{"my_rewards.py:never": None, "other.py:never": None}]]


# --- failures -------------------------------------------------------------------------------------


def test_masked_problems_are_part_of_the_record(store: RunStore, make_worker: Any) -> None:
    request = make_request(store, make_shard(("ba", "b"), ("odd", "ba"), ("ba", "ba")))
    worker = make_worker("counted", "not_odd", on_error="mask")
    ref = worker.reward(request=request)
    rewarded = store.read_record(ref.file, RewardedShard)
    assert rewarded.rewards[1] == [{"counted": None, "not_odd": None}] * 2
    assert rewarded.rewards[0][0] == {"counted": 1.0, "not_odd": 1.0}
    assert rewarded.failures == (
        RewardFailure(
            function="not_odd",
            problem_id="train-1",
            num_completions=2,
            kind="exception",
            message="raised ValueError: odd",
            attempts=2,
        ),
    )
    assert (ref.reward_sum, ref.num_scored) == (7.0, 4)
    assert (ref.failed_calls, ref.masked) == ({"not_odd": 2}, {"not_odd": 2})
    again = worker.reward(request=request)
    assert (again.failed_calls, again.masked) == (ref.failed_calls, ref.masked)


def test_a_dry_run_neither_masks_nor_retries(make_worker: Any) -> None:
    worker = make_worker("broken", on_error="mask", retries=50)
    with refused(RewardError, "'broken'", "ZeroDivisionError"):
        worker.dry_run(problems=problems(1))
