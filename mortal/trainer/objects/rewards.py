"""Reward functions as entries of `[[rewards.terms]]`, whatever form they are given in."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mortal.trainer.objects.environments import kind_of
from mortal.trainer.objects.place import place_of
from mortal_steps.config.reward_forms import in_full
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.errors import ConfigError, RewardError
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.kinds.function import FunctionTerm
from mortal_steps.rewards.kinds.pickled import PickledTerm
from mortal_steps.rewards.pickles.files import write_pickle
from mortal_steps.rewards.pickles.object_digest import digest_of, is_imported
from mortal_steps.rewards.users_code.project import find_in, is_protected

Reward = str | Callable[..., Any] | RewardTerm
"""A name, a function or environment, or a kind of reward with its settings."""
LAMBDA = "<lambda>"
REWARDS = "a function, a RewardEnvironment, or a name such as 'rewards.py:correct'"


def terms_of(
    rewards: Reward | Sequence[Reward] | None, weights: Sequence[float] | None, runs_dir: str
) -> list[dict[str, Any]]:
    """Entries of `[[rewards.terms]]`; None is code execution against the dataset's test cases.

    Raises `ConfigError` for weights that do not fit, and `RewardError` for what is no reward or
    cannot travel, with the remedy.
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
        raise ConfigError("reward_funcs is empty; name a reward, or leave it out for 'sandbox'")
    if weights is not None and not isinstance(weights, Sequence):
        raise ConfigError(
            f"reward_weights = {weights!r}: write a list with a number for each reward"
        )
    if weights is not None and len(weights) != len(given):
        raise ConfigError(
            f"reward_weights has {len(weights)} numbers for {len(given)} reward_funcs; give one "
            "each"
        )
    terms = [
        _term(reward, f"reward_funcs[{place}]", runs_dir) for place, reward in enumerate(given)
    ]
    _tell_apart(terms)
    for term, weight in zip(terms, weights or (), strict=False):
        term["weight"] = weight
    return terms


def _term(reward: Any, place: str, runs_dir: str) -> dict[str, Any]:
    if isinstance(reward, str):
        try:
            return in_full(reward)
        except ValueError as error:
            raise RewardError(f"{place}: {error}") from None
    if isinstance(reward, RewardTerm):
        return reward.model_dump(exclude_unset=True) | {"type": reward.type}
    if inspect.isclass(reward) and issubclass(reward, RewardEnvironment):
        reward = reward()
    if not callable(reward):
        raise RewardError(f"{place} is of type {type(reward).__name__}; give {REWARDS}")
    kind = kind_of(reward)
    if kind is not None:
        return kind
    name = spec_of(reward)
    if name is not None:
        return FunctionTerm(function=name).model_dump(exclude_defaults=True) | {"type": "function"}
    return _pickled(reward, place, runs_dir)


def spec_of(reward: Any) -> str | None:
    """`module:function` or `path/file.py:function` of what can be imported by its name, without
    running the script that asks. None in a package beside the script, too: its files import each
    other, and are not read one by one."""
    module = is_imported(reward)
    if module is None or not inspect.isfunction(reward) or "." in reward.__qualname__:
        return None
    place = users_place(module)
    if "." in module and place is not None and place.endswith(".py"):
        return None
    return f"{place or module}:{reward.__name__}"


def users_place(module: str) -> str | None:
    """The file of a module of the user's below the current folder or beside the script, or the
    module's name where it is in a package there; None for one that is installed."""
    file = _file_of(module)
    if file is None or not file.endswith(".py") or is_protected(module.partition(".")[0]):
        return None
    path, here = Path(file).absolute(), Path.cwd()
    installed = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    if any(path.is_relative_to(one) for one in installed):
        return None
    if not path.is_relative_to(here):
        beside = _folder_of_script()
        return str(path) if beside is not None and path.is_relative_to(beside) else None
    below = path.relative_to(here)
    in_package = "." in module and below.with_suffix("").as_posix().replace("/", ".") == module
    return module if in_package else str(below)


def _file_of(module: str) -> str | None:
    """The file of a module, which a function may import when it runs: then it is not loaded yet."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    files = find_in([Path(folder).absolute() for folder in sys.path], module)
    return str(files[-1]) if files else None


def _folder_of_script() -> Path | None:
    """Whose modules this process finds by their names, and others do not."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return None if script is None else Path(script).absolute().parent


def _pickled(reward: Any, place: str, runs_dir: str) -> dict[str, Any]:
    called = f"{place} ({_name(reward)})"
    digest, modules = digest_of(reward, called)
    path = place_of(runs_dir, "reward", digest).with_suffix(".pickle")
    write_pickle(path, reward, digest, called)  # whatever is there may be of another Python
    return {
        "type": PickledTerm.model_fields["type"].default,
        "object": digest,
        "file": str(path),
        "modules": sorted(_places(modules)),
        "name": _name(reward),
    }


def _places(modules: Iterable[str]) -> set[str]:
    found = map(users_place, modules)
    return {place for place in found if place is not None}


def _name(reward: Any) -> str:
    """In metrics and records."""
    name = getattr(reward, "__name__", None) or type(reward).__name__
    return "lambda" if name == LAMBDA else name


def _tell_apart(terms: list[dict[str, Any]]) -> None:
    """Give pickled rewards of one name numbers: `lambda_1`, `lambda_2`."""
    names = Counter(term["name"] for term in terms if term["type"] == "pickled")
    seen: Counter[str] = Counter()
    for term in terms:
        if term["type"] == "pickled" and names[term["name"]] > 1:
            seen[term["name"]] += 1
            term["name"] = f"{term['name']}_{seen[term['name']]}"
