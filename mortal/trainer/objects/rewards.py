"""Turns rewards, in whatever form they are given, into entries of `[[rewards.terms]]`."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mortal.trainer.objects.code import name_of, pickled, spec_of
from mortal.trainer.objects.models import saved, tokenizer_of
from mortal_steps.config.rewards import RewardTerm, in_full
from mortal_steps.errors import ConfigError, RewardError
from mortal_steps.recipes.references import find_reference
from mortal_steps.rewards.code_execution.environment import CodeExecutionEnvironment
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.judge.environment import LLMJudgeEnvironment
from mortal_steps.rewards.kinds.users_code import FunctionTerm, PickledTerm

Reward = str | Callable[..., Any] | RewardTerm
"""A name, a function, an environment, or a kind of reward with its settings."""
REWARDS = "a function, a RewardEnvironment, or a name such as 'rewards.py:correct'"


def terms_of(
    rewards: Reward | Sequence[Reward] | None,
    weights: Sequence[float] | None,
    runs_dir: str,
    tokenizers: Any = None,
) -> list[dict[str, Any]]:
    """Return the entries of `[[rewards.terms]]`. If `rewards` is None, completions are run as
    programs against the dataset's test cases. `tokenizers` are those of reward models, as TRL's
    `reward_processing_classes` has them.

    Raises `ConfigError` if weights or tokenizers do not fit the rewards. Raises `RewardError`, with
    the remedy, for anything that is not a reward, and for a reward that cannot be pickled.
    """
    given: Sequence[Reward]
    if rewards is None:
        given = ["sandbox"]
    elif isinstance(rewards, str | RewardTerm) or callable(rewards):
        given = [rewards]
    elif not isinstance(rewards, Iterable):
        raise RewardError(f"reward_funcs is of type {type(rewards).__name__}; give {REWARDS}")
    else:
        given = list(rewards)
    if not given:
        raise ConfigError("reward_funcs is empty; give a reward, or leave it out for 'sandbox'")
    if weights is not None and not isinstance(weights, Sequence):
        raise ConfigError(
            f"reward_weights = {weights!r}: write a list with one number for each reward"
        )
    if weights is not None and len(weights) != len(given):
        raise ConfigError(
            f"reward_weights has {len(weights)} numbers for {len(given)} reward_funcs; give one "
            "number for each"
        )
    own = tokenizers if isinstance(tokenizers, list) else [tokenizers] * len(given)
    if len(own) != len(given):
        raise ConfigError(
            f"reward_processing_classes has {len(own)} entries for {len(given)} reward_funcs; give "
            "one tokenizer, or None, for each"
        )
    terms = [
        _term(reward, f"reward_funcs[{number}]", runs_dir, tokenizer)
        for number, (reward, tokenizer) in enumerate(zip(given, own, strict=True))
    ]
    _tell_apart(terms)
    for term, weight in zip(terms, weights or (), strict=False):
        term["weight"] = weight
    return terms


def _term(reward: Any, place: str, runs_dir: str, tokenizer: Any) -> dict[str, Any]:
    if (stage := find_reference(reward, place)) is not None:
        return {"type": "model", "model": str(stage), "name": stage.stage}
    if isinstance(reward, str):
        try:
            term = in_full(reward)
        except ValueError as error:
            raise RewardError(f"{place}: {error}") from None
        if tokenizer is not None and term["type"] == "model":
            term["tokenizer"] = str(saved(runs_dir, tokenizer))
        return term
    if isinstance(reward, RewardTerm):
        return reward.model_dump(exclude_unset=True) | {"type": reward.type}
    if inspect.isclass(reward) and issubclass(reward, RewardEnvironment):
        reward = reward()
    if not callable(reward):
        raise RewardError(f"{place} is of type {type(reward).__name__}; give {REWARDS}")
    if any(base.__name__ == "PreTrainedModel" for base in type(reward).__mro__):
        own = tokenizer or tokenizer_of(reward, "reward_processing_classes")
        called = Path(str(reward.config.name_or_path)).name or type(reward).__name__
        return {"type": "model", "model": str(saved(runs_dir, reward, own)), "name": called}
    kind = _kind_of(reward)
    if kind is not None:
        return kind
    name = spec_of(reward) if inspect.isfunction(reward) else None
    if name is not None:
        return FunctionTerm(function=name).model_dump(exclude_defaults=True) | {"type": "function"}
    return _pickled(reward, place, runs_dir)


def _kind_of(reward: Any) -> dict[str, Any] | None:
    """Return the entry of `[[rewards.terms]]` for an environment that comes with MORTAL.

    Its kind knows how long a call may take, what it costs, and which questions were asked before.

    None for any other reward, and for an environment of a derived class or one whose attributes
    were changed after it was constructed.
    """
    if type(reward) not in (CodeExecutionEnvironment, LLMJudgeEnvironment):
        return None
    settings = reward.term.model_dump(exclude_defaults=True)
    if isinstance(reward, LLMJudgeEnvironment):  # without one, OPENAI_BASE_URL would decide
        settings["base_url"] = reward.term.base_url
    if _public(reward) != _public(type(reward)(**settings)):
        return None
    return {"type": reward.term.type, **settings}


def _public(reward: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(reward).items() if not name.startswith("_")}


def _pickled(reward: Any, place: str, runs_dir: str) -> dict[str, Any]:
    return {
        "type": PickledTerm.model_fields["type"].default,
        **pickled(reward, "reward", place, runs_dir),
        "name": name_of(reward),
    }


def _tell_apart(terms: list[dict[str, Any]]) -> None:
    """Give numbers to pickled rewards that have the same name: `lambda_1`, `lambda_2`."""
    names = Counter(term["name"] for term in terms if term["type"] == "pickled")
    seen: Counter[str] = Counter()
    for term in terms:
        if term["type"] == "pickled" and names[term["name"]] > 1:
            seen[term["name"]] += 1
            term["name"] = f"{term['name']}_{seen[term['name']]}"
