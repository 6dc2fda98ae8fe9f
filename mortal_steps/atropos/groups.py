"""The groups of a batch, as an Atropos environment scored them, and the sequences to train on.

One sequence of a group; positions line up, and -100 masks what the policy did not sample:

    tokens               [ 5,    9,    7,    2]
    masks                [-100, -100,  7,    2]
    inference_logprobs   [ 1.0,  1.0, -0.4, -1.2]
    advantages           [ 0.0,  0.0,  0.5,  0.5]      only where the environment decides them
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from mortal_steps.errors import BatchSourceError

MASKED = -100
"""Value in `masks` at tokens that are not trained on."""
LEAST_STD = 1e-8
ROUNDING = 1e-3
"""Nats by which a log-probability may lie above 0."""
LEAST_LOGPROB = -50.0
"""Log-probability in nats; a lower one is a placeholder, since nobody samples such a token."""
MOST = 1e6
"""Largest magnitude of scores and advantages with which a loss and its gradients stay finite."""


class Group(BaseModel):
    """Sequences that an environment sampled for one item and scored against each other."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    advantages: list[list[float]] | None = None
    """Of each token, where the environment decides them and not the scores."""
    inference_logprobs: list[list[float]] | None = None
    """Of each token when it was sampled, in nats; None: nobody knows."""
    overrides: list[dict[str, Any]] | None = None
    """Settings of single sequences."""
    generation_params: dict[str, Any] | None = None
    group_overrides: dict[str, Any] | None = None
    env_id: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredSequence:
    """One sequence to train on. All lists have one length T."""

    tokens: Sequence[int]
    trained: Sequence[bool]
    """Which tokens the policy sampled; never the first, which nothing precedes."""
    advantages: Sequence[float]
    logprobs: Sequence[float] | None
    """In nats, of the tokens that are trained on; 0.0 elsewhere."""
    temperature: float
    score: float

    @property
    def largest_advantage(self) -> float:
        """Magnitude of the largest advantage of a token that is trained on; 0 without any."""
        pairs = zip(self.trained, self.advantages, strict=True)
        return max((abs(advantage) for there, advantage in pairs if there), default=0.0)


def read_group(
    values: Mapping[str, Any], *, max_length: int, vocabulary: int | None = None
) -> Group:
    """Return a group of at most `max_length` tokens a sequence, each below `vocabulary`; raise
    `BatchSourceError` for one that cannot be trained on."""
    try:
        group = Group.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise BatchSourceError(f"{_named(values)}: {key}: {wrong['msg']}") from None
    reason = _why_unusable(group, max_length) or _unknown_token(group, vocabulary)
    if reason is not None:
        raise BatchSourceError(f"{_named(values)}: {reason}")
    return group


def _named(values: Mapping[str, Any]) -> str:
    env_id = values.get("env_id")
    return "a group" if env_id is None else f"a group of environment {env_id}"


def _unknown_token(group: Group, vocabulary: int | None) -> str | None:
    largest = max(max(tokens) for tokens in group.tokens)
    if vocabulary is None or largest < vocabulary:
        return None
    return (
        f"it has the token {largest}, and the model knows {vocabulary} tokens; the environment has "
        "the tokenizer of another model"
    )


def _why_unusable(group: Group, max_length: int) -> str | None:
    size = len(group.tokens)
    if size == 0:
        return "it has no sequences"
    for name in ("masks", "scores", "advantages", "inference_logprobs", "overrides"):
        given = getattr(group, name)
        if given is not None and len(given) != size:
            return f"{name} has {len(given)} entries for {size} sequences"
    if abs(score := max(group.scores, key=abs)) > MOST:
        return f"it has the score {score:g}, of a magnitude above {MOST:g}"
    for number in range(size):
        if reason := _why_sequence_unusable(group, number, max_length):
            return f"sequence {number}: {reason}"
    return None


def _why_sequence_unusable(group: Group, number: int, max_length: int) -> str | None:
    tokens = group.tokens[number]
    if not 2 <= len(tokens) <= max_length:
        return f"it has {len(tokens)} tokens; the trainer takes 2 to {max_length}"
    if min(tokens) < 0:
        return f"it has the token {min(tokens)}"
    for name in ("masks", "advantages", "inference_logprobs"):
        rows = getattr(group, name)
        if rows is not None and len(rows[number]) != len(tokens):
            return f"{name} has {len(rows[number])} values for {len(tokens)} tokens"
    for token, mask in zip(tokens, group.masks[number], strict=True):
        if mask not in (MASKED, token):
            return f"a mask is {mask}, which is neither {MASKED} nor the token {token}"
    temperature = _temperature(group, number)
    if not (isinstance(temperature, int | float) and 0 < temperature < math.inf):
        return f"temperature = {temperature!r} is not a number above 0"
    largest = max(group.advantages[number], key=abs) if group.advantages is not None else 0.0
    if abs(largest) > MOST:
        return f"an advantage is {largest:g}, of a magnitude above {MOST:g}"
    if group.inference_logprobs is None:
        return None
    pairs = zip(group.masks[number], group.inference_logprobs[number], strict=True)
    logprobs = [logprob for mask, logprob in pairs if mask != MASKED]
    highest, lowest = max(logprobs, default=0.0), min(logprobs, default=0.0)
    if highest > ROUNDING:
        return f"a sampled token has the log-probability {highest}, above 0"
    if lowest < LEAST_LOGPROB:
        return (
            f"a sampled token has the log-probability {lowest}, below {LEAST_LOGPROB}; where "
            "none is known, leave inference_logprobs out"
        )
    return None


def sequences_of(group: Group) -> list[ScoredSequence]:
    """Return the sequences of a group, each with its advantages.

    The advantage is (score - mean) / max(standard deviation, 1e-8) within the group, that of a
    group of one its score, unless the environment decides it.
    """
    by_score = _advantages(group.scores)
    found = []
    for number, tokens in enumerate(group.tokens):
        trained = [place > 0 and mask != MASKED for place, mask in enumerate(group.masks[number])]
        advantages = [by_score[number]] * len(tokens)
        if group.advantages is not None:
            advantages = group.advantages[number]
        if _override(group, number).get("set_advantage_to_zero"):
            advantages = [0.0] * len(tokens)
        logprobs = None
        if group.inference_logprobs is not None:
            pairs = zip(trained, group.inference_logprobs[number], strict=True)
            logprobs = [logprob if there else 0.0 for there, logprob in pairs]
        found.append(
            ScoredSequence(
                tokens=tokens,
                trained=trained,
                advantages=advantages,
                logprobs=logprobs,
                temperature=float(_temperature(group, number)),
                score=group.scores[number],
            )
        )
    return found


def _advantages(scores: Sequence[float]) -> list[float]:
    if len(scores) == 1:
        return list(scores)
    mean = math.fsum(scores) / len(scores)
    variance = math.fsum((score - mean) ** 2 for score in scores) / len(scores)
    return [(score - mean) / max(math.sqrt(variance), LEAST_STD) for score in scores]


def _override(group: Group, number: int) -> Mapping[str, Any]:
    return group.overrides[number] if group.overrides is not None else {}


def _temperature(group: Group, number: int) -> Any:
    """Return what a sequence was sampled at: its own setting goes before that of its generation,
    that before its group's, and that before 1."""
    levels = (_override(group, number), group.generation_params, group.group_overrides)
    return next((each["temperature"] for each in levels if each and "temperature" in each), 1.0)
