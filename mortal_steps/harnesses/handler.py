"""`HarnessHandler`: what loads and calls a harness, in a process of its own."""

import inspect
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from mortal_steps.config.eval_sets import Harness, Policy
from mortal_steps.config.plain_words import complaint
from mortal_steps.errors import HarnessError, MortalError
from mortal_steps.users_code.loading import import_code

ALONE = "reward"
"""The metric of scores that have no name of their own."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a harness answered, checked; see `HarnessAnswer`."""

    number: float | None = None
    scores: dict[str, dict[str, float | None]] = field(default_factory=dict)
    reward: str = ""


class HarnessHandler:
    """Holds the harness of the set `name`."""

    def __init__(self, *, name: str, harness: Harness) -> None:
        self._named = f"evaluation.sets.{name}"
        self._harness = _loaded(self._named, harness)
        self._configured = harness

    def check(self) -> None:
        """Raise `HarnessError` if it says that it cannot work, and for what it names itself that
        only its table says."""
        self._check_its_table()
        self._called("check", lambda: self._harness.check())

    def _check_its_table(self) -> None:
        own, configured = self._harness, self._configured
        for name, usual in Harness.model_fields.items():
            default = type(own).model_fields[name].default
            given = getattr(configured, name)
            if name != "type" and default != usual.default and default != given:
                raise HarnessError(
                    f"{self._named}: {configured.type} has a `{name}` of its own, and the run goes "
                    f"by its table alone; leave it out there, and set {self._named}.{name}"
                )
        if own.code != configured.code or own.read_files != configured.read_files:
            raise HarnessError(
                f"{self._named}: {configured.type} says itself what it is made of, and nobody who "
                "notices edited files asks it. What its file imports is noticed anyway; name other "
                f"files in {self._named}.files"
            )

    def evaluate(self, *, policy: Policy) -> Found:
        """Let it evaluate the policy; raises `HarnessError`, also for an answer of no scores."""
        found = self._called("evaluate", lambda: self._harness.evaluate(policy))
        return checked(self._named, self._harness.metric, found)

    def _called(self, method: str, call: Any) -> Any:
        try:
            return call()
        except MortalError as error:
            raise HarnessError(f"{self._named}: {error}") from None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to users' code
            frames = traceback.extract_tb(error.__traceback__)[2:]
            trace = "".join(traceback.format_list(frames))
            raise HarnessError(
                f"{self._named}: `{method}` of {self._harness.type} raised "
                f"{type(error).__name__}: {error}\n{trace}".rstrip()
            ) from None


def checked(named: str, metric: str, found: Any) -> Found:
    """Return what a harness answered, problems in the order of their names; raise `HarnessError`
    unless it is a number or scores by problem."""
    if not isinstance(found, Mapping):
        return Found(number=_number(f"{named}: its answer", found), reward=ALONE)
    scores = {
        str(problem): _by_metric(f"{named}: the score of problem {problem!r}", its)
        for problem, its in sorted(found.items(), key=lambda item: str(item[0]))
    }
    if len(scores) < len(found) or not scores:
        raise HarnessError(f"{named} answered scores of {len(scores)} problems; name each apart")
    metrics = list(dict.fromkeys(name for its in scores.values() for name in its))
    if metric and metric not in metrics:
        there = ", ".join(metrics) or "none"
        raise HarnessError(f"{named}.metric = {metric!r} is no metric of it (there are: {there})")
    if not metric and len(metrics) != 1:
        raise HarnessError(
            f"{named} answered {len(metrics)} metrics ({', '.join(metrics)}); say which of them "
            f"counts: {named}.metric"
        )
    reward = metric or metrics[0]
    without = [problem for problem, its in scores.items() if reward not in its]
    if without:
        raise HarnessError(
            f"{named}: problem {without[0]!r} has no {reward!r}, which counts as the reward; let "
            "it be None where nobody knows it, and make what is measured otherwise another set"
        )
    return Found(scores=scores, reward=reward)


def _by_metric(named: str, its: Any) -> dict[str, float | None]:
    values = its if isinstance(its, Mapping) else {ALONE: its}
    return {
        str(metric): None if value is None else _number(named, value)
        for metric, value in sorted(values.items())
    }


def _number(named: str, value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, str) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise HarnessError(f"{named} is {value!r:.80}, which is no number")
    return number


def _loaded(named: str, harness: Harness) -> Harness:
    """Return the harness itself or, of a user's own, one of the class that its `type` names."""
    if type(harness) is not Harness:
        return harness
    where = f"{named}.type = {harness.type!r}"
    kind = import_code(harness.type, where, noun="Class", is_one=_is_harness, error=HarnessError)
    if not _is_harness(kind):
        raise HarnessError(f"{where} is no subclass of mortal.extend.Harness; derive it from that")
    try:
        own: Harness = kind.model_validate(harness.model_dump())
    except ValidationError as error:
        wrong = "; ".join(complaint(each, named) for each in error.errors())
        raise HarnessError(wrong) from None
    return own


def _is_harness(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Harness)
