"""mortal_steps.rewards.calling.dispatch: functions are called as TRL calls them."""

import asyncio
import collections
import functools
import threading
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch

from mortal_steps.config import TrainingConfig
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.evaluations import mean_scores
from mortal_steps.rewards.calling.calls import CallFailure
from mortal_steps.rewards.calling.dispatch import is_async, takes_environments
from mortal_steps.rewards.kinds.users_code import FunctionTerm
from mortal_steps.schedule import num_train_steps
from mortal_steps.types import RewardedShard
from tests.support.rewards.calling import STATE, call, scored, slow
from tests.support.rewards.shards import CHAT, make_shard

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


def test_a_message_that_was_taken_apart_is_the_completion() -> None:
    seen: dict[str, Any] = {}

    def record(completions: Any, **kwargs: Any) -> list[float]:
        seen.update(completions=completions)
        return [0.0]

    shard = make_shard(("<think>a</think>b",), prompt=CHAT)
    message = {"role": "assistant", "content": "b", "reasoning_content": "a"}
    group = shard.groups[0]
    parsed = replace(group, completions=[replace(group.completions[0], message=message)])
    scored(record, replace(shard, groups=[parsed]))
    assert seen["completions"] == [[message]]


def test_all_that_was_said_in_the_turns_of_a_chat_is_the_completion() -> None:
    seen: dict[str, Any] = {}

    def record(completions: Any, **kwargs: Any) -> list[float]:
        seen.update(completions=completions)
        return [0.0]

    shard = make_shard(("guess",), prompt=CHAT)
    said = [
        {"role": "assistant", "content": "guess"},
        {"role": "user", "content": "no"},
        {"role": "assistant", "content": "b"},
    ]
    group = shard.groups[0]
    episode = replace(group, completions=[replace(group.completions[0], messages=said)])
    scored(record, replace(shard, groups=[episode]))
    assert seen["completions"] == [said]


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


def test_trl_names_held_out_sets_and_counts_parts_of_epochs_alike(
    model_path: str, tmp_path: Any
) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def short(completions: list[str], **_: Any) -> list[float]:
        return [-float(len(text)) for text in completions]

    args = GRPOConfig(
        output_dir=str(tmp_path),
        num_train_epochs=0.7,
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=4,
        eval_strategy="steps",
        eval_steps=10,
        per_device_eval_batch_size=2,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
    )
    sets = {"easy": 1, "hard": 2}
    trainer = GRPOTrainer(
        model=model_path,
        args=args,
        reward_funcs=short,
        train_dataset=Dataset.from_list([{"prompt": "ab="}] * 7),
        eval_dataset={n: Dataset.from_list([{"prompt": "a="}] * size) for n, size in sets.items()},
    )
    trainer.train()
    ours = TrainingConfig(batch_size=2, num_generations=2, num_epochs=0.7)
    assert trainer.state.global_step == num_train_steps(7, ours) == 3
    named = set(trainer.evaluate())
    logged = {name for row in trainer.state.log_history for name in row}
    rows = [[{"short": -1.0}]] * 3
    shard = RewardedShard(step=0, shard=0, generation_sha256="", rewards=rows)
    found = mean_scores(RunConfig(rewards={"functions": ("m:short",)}).rewards, [shard], sets)
    for name in sets:  # TRL names a set in its loss, and calls the rewards of each alike
        of_set = {each for each in found if each.startswith(f"eval_{name}_")}
        assert f"eval_{name}_loss" in named and len(of_set) == 2
        assert {each.replace(f"eval_{name}_", "eval_") for each in of_set} <= logged


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

    assert scored(longest_of_group).scores == [1.0, 0.0, 0.0, 1.0]
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
        [Fraction(1), Fraction(1, 2), None, Decimal(1)],
        collections.deque([1, 0.5, None, True]),
        (value for value in (1, 0.5, None, True)),
    ],
)
def test_numbers_of_any_library_and_none(returned: Any) -> None:
    got = scored(lambda **kwargs: returned).scores
    assert got == [1.0, 0.5, None, 1.0]
    assert {type(value) for value in got} == {float, type(None)}


def test_a_generator_is_a_reward_function_as_in_trl() -> None:
    def yields(completions: Any, log_metric: Any, **kwargs: Any) -> Any:
        for text in completions:
            log_metric("length", len(text))
            yield len(text) / 2

    async def later(**kwargs: Any) -> Any:
        return (value for value in range(4))

    found = scored(yields)
    assert (found.scores, found.metrics) == ([1.0, 0.5, 0.0, 2.0], {"length": [2, 1, 0, 4]})
    assert scored(later).scores == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("whole", [numpy.array, torch.tensor])
def test_whole_arrays(whole: Any) -> None:
    assert scored(lambda **kwargs: whole([1.0, 0.0, 0.25, 2.0])).scores == [1.0, 0.0, 0.25, 2.0]


def test_metrics_and_extra_columns() -> None:
    def report(completions: Any, log_metric: Any, log_extra: Any, **kwargs: Any) -> list[float]:
        log_metric("length", 1)
        log_metric("length", numpy.float32(2))
        log_extra("text", completions)
        log_extra("kind", [int, numpy.float64(1.5), None, True])
        return [0.0] * 4

    scores = scored(report)
    assert scores.metrics == {"length": [1.0, 2.0]}
    assert scores.extra == {
        "text": ["ba", "b", "", "baba"],
        "kind": ["<class 'int'>", 1.5, None, True],
    }
    assert type(scores.extra["kind"][1]) is float


def test_a_column_has_a_value_for_each_completion() -> None:
    def report(log_extra: Any, **kwargs: Any) -> list[float]:
        log_extra("text", ["a", "b", "c"])
        return [0.0] * 4

    failure = call(f=report)["f"]
    assert isinstance(failure, CallFailure)
    assert failure.message == "logged 3 values of 'text' for 4 completions"


def test_what_a_call_logs_is_bounded() -> None:
    def many_names(log_metric: Any, completions: Any, **kwargs: Any) -> list[float]:
        for number in range(1000):
            log_metric(f"answer {number}", 1.0)
        return [0.0] * 4

    def long_column(log_extra: Any, **kwargs: Any) -> list[float]:
        for number in range(100):
            log_extra(f"text {number}", ["x" * 2**20] * 4)
        return [0.0] * 4

    outcomes = call(many_names=many_names, long_column=long_column)
    for name, expected in (("many_names", "more than 100"), ("long_column", "more than 16,777")):
        failure = outcomes[name]
        assert isinstance(failure, CallFailure)
        assert expected in failure.message


def first_scores(outcomes: dict[str, Any]) -> dict[str, float]:
    return {name: outcome.scores[0] for name, outcome in outcomes.items()}


# --- async functions ------------------------------------------------------------------------------


class AsyncObject:
    async def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        return [2.0] * len(completions)


def test_a_function_that_is_given_strings_stays_what_it_is(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "async def later(completions, **kwargs): return [len(text) for text in completions]\n"
        "def beside(completions, environments, **kwargs): return [1.0] * len(completions)\n"
        "def plain(prompts, **kwargs): return [len(text) for text in prompts]\n"
    )
    names = ("later", "beside", "plain")
    made = {name: FunctionTerm(function=f"own.py:{name}", form="strings").load() for name in names}
    assert [is_async(each) for each in made.values()] == [True, False, False]
    assert [takes_environments(each) for each in made.values()] == [False, True, False]
    shard = make_shard(("ba", "b"), prompt=CHAT)
    assert scored(made["later"], shard).scores == [2.0, 1.0]
    assert scored(made["plain"], shard).scores == [3.0, 3.0]


def test_async_callables_of_every_form() -> None:
    partial = functools.partial(slow, scale=3.0)
    outcomes = call(object=AsyncObject(), partial=partial, function=slow)
    assert first_scores(outcomes) == {"object": 2.0, "partial": 3.0, "function": 1.0}


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
