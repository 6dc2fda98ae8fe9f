"""mortal_steps.rewards.dispatch: functions are called as TRL calls them, and never believed."""

import asyncio
import functools
import pickle
import threading
from typing import Any

import numpy
import pytest
import torch

from mortal_steps.errors import RewardError, TransientError
from mortal_steps.rewards.base import TrainerState, text_of, weighted_sum
from mortal_steps.rewards.dispatch import Scores, score
from tests.rewards.shards import CHAT, make_shard

STATE = TrainerState(global_step=8, max_steps=20)
SHARD = make_shard(("ba", "b"), ("", "baba"))


def scored(function: Any, shard: Any = SHARD) -> Scores:
    return score([function], ["f"], shard, STATE)


def column(scores: Scores, name: str = "f") -> list[float | None]:
    return [row[name] for group in scores.rewards for row in group]


# --- how a function is called ---------------------------------------------------------------------


def test_arguments_with_text_prompts() -> None:
    seen: list[dict[str, Any]] = []

    def record(**kwargs: Any) -> list[float]:
        seen.append(kwargs)
        return [0.0] * 4

    scored(record)
    (arguments,) = seen
    assert arguments.pop("log_extra") and arguments.pop("log_metric")
    assert arguments == {
        "prompts": ["ab="] * 4,
        "completions": ["ba", "b", "", "baba"],
        "completion_ids": [[3, 4, 1], [3, 1], [1], [3, 4, 5, 6, 1]],
        "answer": ["ba"] * 4,
        "trainer_state": STATE,
    }


def test_arguments_with_chat_prompts() -> None:
    seen: dict[str, Any] = {}

    def record(prompts: Any, completions: Any, **kwargs: Any) -> list[float]:
        seen.update(prompts=prompts, completions=completions)
        return [0.0] * 2

    scored(record, make_shard(("ba", "b"), prompt=CHAT))
    assert seen["prompts"] == [CHAT, CHAT]
    assert seen["completions"] == [
        [{"role": "assistant", "content": "ba"}],
        [{"role": "assistant", "content": "b"}],
    ]


@pytest.mark.parametrize("chat", [False, True])
def test_trl_gives_the_same_arguments(model_path: str, tmp_path: Any, chat: bool) -> None:
    """The real GRPOTrainer, one step: same names, same shapes."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    seen: list[dict[str, Any]] = []

    def record(**kwargs: Any) -> list[float]:
        seen.append(kwargs)
        return [0.0] * len(kwargs["prompts"])

    prompt = CHAT if chat else "ab="
    columns = {"answer": "ba", "completion": "left out", "level": 3}
    args = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=4,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
    )
    GRPOTrainer(
        model=model_path,
        args=args,
        reward_funcs=record,
        train_dataset=Dataset.from_list([{"prompt": prompt, **columns}] * 2),
    ).train()
    scored(record, make_shard(("ba", "b"), prompt=prompt, columns=columns))
    trl, ours = seen
    assert ours.keys() == trl.keys()
    for name in ("prompts", "answer", "level"):
        assert ours[name] == trl[name]
    for name in ("completions", "completion_ids"):
        assert _shape(ours[name]) == _shape(trl[name])
    for name in ("global_step", "max_steps"):
        assert isinstance(getattr(trl["trainer_state"], name), int)
        assert isinstance(getattr(ours["trainer_state"], name), int)


def _shape(value: Any) -> Any:
    """Types, dictionary keys and roles, not lengths."""
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    if isinstance(value, dict):
        return {name: item if name == "role" else _shape(item) for name, item in value.items()}
    return type(value)


def test_one_call_sees_whole_groups() -> None:
    calls: list[list[str]] = []

    def longest_of_group(completions: list[str], **kwargs: Any) -> list[float]:
        calls.append(completions)
        pairs = [completions[i : i + 2] for i in range(0, len(completions), 2)]
        return [float(text == max(pair, key=len)) for pair in pairs for text in pair]

    assert column(scored(longest_of_group)) == [1.0, 0.0, 0.0, 1.0]
    assert len(calls) == 1


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [
        [1, 0.5, None, True],
        (1, 0.5, None, True),
        [numpy.float32(1), numpy.float64(0.5), None, numpy.bool_(True)],
        [torch.tensor(1), torch.tensor(0.5), None, torch.tensor([1.0])],
        [numpy.int64(1), numpy.array(0.5), None, numpy.array([1])],
    ],
)
def test_numbers_of_any_library_and_none(returned: Any) -> None:
    got = column(scored(lambda **kwargs: returned))
    assert got == [1.0, 0.5, None, 1.0]
    assert {type(value) for value in got} == {float, type(None)}


@pytest.mark.parametrize("whole", [numpy.array, torch.tensor])
def test_whole_arrays(whole: Any) -> None:
    assert column(scored(lambda **kwargs: whole([1.0, 0.0, 0.25, 2.0]))) == [1.0, 0.0, 0.25, 2.0]


def test_scores_lie_beside_their_completions() -> None:
    shard = make_shard(("a", "bb"), ("ccc",))
    scores = score(
        [lambda completions, **kwargs: [len(text) for text in completions], _abstain],
        ["length", "none"],
        shard,
        STATE,
    )
    assert scores.rewards == [
        [{"length": 1.0, "none": None}, {"length": 2.0, "none": None}],
        [{"length": 3.0, "none": None}],
    ]


def _abstain(completions: list[str], **kwargs: Any) -> list[None]:
    return [None] * len(completions)


def test_metrics_and_extra_columns() -> None:
    def report(completions: Any, log_metric: Any, log_extra: Any, **kwargs: Any) -> list[float]:
        log_metric("length", 1)
        log_metric("length", numpy.float32(2))
        log_extra("text", completions)
        log_extra("kind", [int, 1.5, None, True])
        return [0.0] * 4

    scores = scored(report)
    assert scores.metrics == {"length": 1.5}
    assert scores.extra == {
        "text": ["ba", "b", "", "baba"],
        "kind": ["<class 'int'>", 1.5, None, True],
    }


# --- async functions ------------------------------------------------------------------------------


class AsyncObject:
    async def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        return [2.0] * len(completions)


async def _slow(completions: list[str], scale: float = 1.0, **kwargs: Any) -> list[float]:
    await asyncio.sleep(0)
    return [scale] * len(completions)


def test_async_functions_run_together_and_plain_ones_before() -> None:
    order: list[str] = []
    together = asyncio.Barrier(2)

    def wait_for_the_other(name: str) -> Any:
        async def function(completions: list[str], **kwargs: Any) -> list[float]:
            await together.wait()  # passes only if both are inside at once
            order.append(name)
            return [1.0] * len(completions)

        return function

    def plain(completions: list[str], **kwargs: Any) -> list[float]:
        order.append("plain")
        return [0.0] * len(completions)

    functions = [wait_for_the_other("a"), plain, wait_for_the_other("b")]
    scores = score(functions, ["a", "plain", "b"], SHARD, STATE)
    assert order[0] == "plain"
    assert scores.rewards[0][0] == {"a": 1.0, "plain": 0.0, "b": 1.0}


def test_async_callables_of_every_form() -> None:
    functions = [AsyncObject(), functools.partial(_slow, scale=3.0), _slow]
    scores = score(functions, ["object", "partial", "function"], SHARD, STATE)
    assert scores.rewards[0][0] == {"object": 2.0, "partial": 3.0, "function": 1.0}


async def test_async_functions_keep_their_loop_wherever_they_are_called_from() -> None:
    """An HTTP client kept between calls belongs to one loop; a running loop here does no harm."""
    loops: set[int] = set()

    async def remember(completions: list[str], **kwargs: Any) -> list[float]:
        loops.add(id(asyncio.get_running_loop()))
        return [0.0] * len(completions)

    scored(remember)
    thread = threading.Thread(target=scored, args=(remember,))
    thread.start()
    thread.join()
    assert len(loops) == 1


# --- failures -------------------------------------------------------------------------------------


def raises(**kwargs: Any) -> list[float]:
    def inner() -> None:
        raise KeyError("column")

    inner()
    return []


async def raises_later(**kwargs: Any) -> list[float]:
    raise KeyError("column")


def exits(**kwargs: Any) -> list[float]:
    raise SystemExit(2)


def no_kwargs(completions: list[str]) -> list[float]:
    return [0.0] * len(completions)


def bad_metric(log_metric: Any, **kwargs: Any) -> list[float]:
    log_metric("length", "long")
    return []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (raises, ["raised KeyError: 'column'", "step 4", "train-0 ... train-1 (2 problems)"]),
        (raises, ["in inner", 'raise KeyError("column")', "never scored 0"]),
        (raises_later, ["raised KeyError: 'column'", "in raises_later"]),
        (exits, ["raised SystemExit: 2"]),
        (no_kwargs, ["unexpected keyword argument", "and **kwargs"]),
        (bad_metric, ["log_metric('length', 'long')", "no finite number"]),
        (lambda **kwargs: [1.0], ["returned 1 scores for 4 completions", "train-0 ... train-1"]),
        (lambda **kwargs: [1.0] * 5, ["returned 5 scores for 4 completions"]),
        (lambda **kwargs: 3, ["returned 3 (int)", "a list of 4 numbers"]),
        (lambda **kwargs: None, ["returned None (NoneType)"]),
        (lambda **kwargs: "1111", ["returned '1111' (str)"]),
        (lambda **kwargs: {"a": 1}, ["returned {'a': 1} (dict)"]),
        (lambda **kwargs: torch.tensor(1.0), ["returned 1.0 (float)"]),
        (
            lambda **kwargs: [0, 0, 0, float("nan")],
            ["returned nan (float) for problem train-1 (completion 1 of it)", "None to abstain"],
        ),
        (lambda **kwargs: [0, float("inf"), 0, 0], ["inf", "train-0 (completion 1 of it)"]),
        (lambda **kwargs: [0, 0, 1e39, 0], ["1e+39", "train-1 (completion 0 of it)"]),
        (lambda **kwargs: [10**400, 0, 0, 0], ["1000", "(int) for problem train-0"]),
        (lambda **kwargs: ["1", 0, 0, 0], ["'1' (str) for problem train-0"]),
        (lambda **kwargs: [[1.0], 0, 0, 0], ["[1.0] (list) for problem train-0"]),
        (lambda **kwargs: numpy.ones((4, 2)), ["[1.0, 1.0] (list) for problem train-0"]),
    ],
)
def test_failures_are_named_and_never_scored(function: Any, expected: list[str]) -> None:
    with pytest.raises(RewardError) as caught:
        scored(function)
    message = str(pickle.loads(pickle.dumps(caught.value)))
    assert message.startswith("reward function 'f' ")
    for part in expected:
        assert part in message


def test_a_single_problem_is_named() -> None:
    with pytest.raises(RewardError, match=r"step 4, problem train-0\."):
        scored(raises, make_shard(("a", "b")))


@pytest.mark.parametrize("is_async", [False, True])
def test_errors_that_may_pass_stay_what_they_are(is_async: bool) -> None:
    def unreachable(**kwargs: Any) -> list[float]:
        raise TransientError("the judge is busy")

    async def unreachable_async(**kwargs: Any) -> list[float]:
        raise TransientError("the judge is busy")

    with pytest.raises(TransientError, match="the judge is busy"):
        scored(unreachable_async if is_async else unreachable)


# --- what is made of scores -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": 1.0, "b": 2.0}, 5.0),
        ({"a": 1.0, "b": None}, 1.0),
        ({"a": None, "b": 0.0}, 0.0),
        ({"a": None, "b": None}, None),
    ],
)
def test_weighted_sum_is_over_the_functions_that_scored(scores: Any, expected: Any) -> None:
    assert weighted_sum(scores, {"a": 1.0, "b": 2.0}) == expected


def test_text_of_a_completion() -> None:
    assert text_of("ba") == text_of([{"role": "assistant", "content": "ba"}]) == "ba"
