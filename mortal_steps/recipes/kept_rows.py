"""Which completions of a problem are kept, and the rows that they become.

    best        prompt, completion              the best of each problem
    above       prompt, completion              all with at least the reward `threshold`
    pairs       prompt, chosen, rejected        the best and the worst of each problem
    unpaired    prompt, completion, label       all; the label is whether the reward is that high

Of completions with the same reward, the one that was sampled first counts. A completion without a
reward is neither good nor bad: it is left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config.section import Section
from mortal_steps.orchestration.trials.scoring import ScoredGroup
from mortal_steps.report.dialogue import prompt_of
from mortal_steps.rewards.calling.calls import completion_of
from mortal_steps.types import Problem, Prompt

Keep = Literal["best", "above", "pairs", "unpaired"]
NEEDING = ("above", "unpaired")
"""What cannot be told without a threshold."""
READ = frozenset(
    {
        *("prompt", "completion", "chosen", "rejected", "label", "margin", "reward"),
        *("messages", "text", "image", "images"),
    }
)
"""Columns that TRL's trainers would read, and our own."""
OF_PROMPTS = ("tools", "chat_template_kwargs")
"""Columns that belong to a prompt: how it is rendered."""


class SampleSettings(Section):
    """`[stages.NAME.sample]`: how often problems are sampled, and what is kept."""

    completions: int = Field(8, ge=1)
    """Completions of each problem."""
    keep: Keep = "best"
    """`best`: the best completion of each problem. `above`: all with at least the reward
    `threshold`. `pairs`: the best and the worst, for DPO and reward models. `unpaired`: all, with
    a label, for KTO."""
    threshold: float | None = None
    """Lowest reward of a completion that is good: one to keep, the better one of a pair, or one
    with the label true. `best` and `pairs` need none."""

    @model_validator(mode="after")
    def _can_tell(self) -> Self:
        if self.keep in NEEDING and self.threshold is None:
            raise ValueError(
                f"keep = {self.keep!r} needs the lowest reward of a good completion; set threshold"
            )
        if self.keep == "pairs" and self.completions < len(("chosen", "rejected")):
            raise ValueError(
                f"completions = {self.completions}, and keep = 'pairs' compares two or more"
            )
        return self


Said = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A scored completion, as it stands in a row: text, or the messages that follow a chat."""

    prompt: Prompt
    said: Said
    reward: float


def candidates_of(scored: ScoredGroup) -> list[Candidate]:
    """Return the completions that have a reward, in the order in which they were sampled."""
    problem = scored.group.problem
    return [
        Candidate(
            prompt=prompt_of(problem, each), said=completion_of(problem.prompt, each), reward=reward
        )
        for each, reward in zip(scored.group.completions, scored.rewards, strict=True)
        if reward is not None
    ]


def rows_of(candidates: Sequence[Candidate], settings: SampleSettings) -> Iterator[dict[str, Any]]:
    """Yield the rows that a problem becomes, without its other columns."""
    least = float("-inf") if settings.threshold is None else settings.threshold
    if candidates:
        yield from _KEEPING[settings.keep](candidates, least)


def made_up_row(prompt: Prompt, keep: Keep) -> dict[str, Any]:
    """Return a row with the columns that there will be."""
    texts = ("0", "1")
    saying: list[Said] = [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for text in texts
    ]
    made = [
        Candidate(prompt=prompt, said=said, reward=float(text))
        for said, text in zip(saying, texts, strict=True)
    ]
    return next(_KEEPING[keep](made, 1.0))


def other_columns(problems: Sequence[Problem]) -> list[str]:
    """Return the names of columns that the rows have beside: those that no trainer reads, and whose
    values are all of one plain type, which every reader of the file takes for the same."""
    names = dict.fromkeys(name for problem in problems for name in problem.columns)
    return [name for name in names if name in OF_PROMPTS or _is_harmless(name, problems)]


def _is_harmless(name: str, problems: Sequence[Problem]) -> bool:
    types = {type(problem.columns.get(name)) for problem in problems} - {type(None)}
    return name not in READ and len(types) == 1 and types <= {str, bool, int, float}


def _best(candidates: Sequence[Candidate], least: float) -> Iterator[dict[str, Any]]:
    best = max(candidates, key=_reward)  # the first of several
    if best.reward >= least:
        yield _row(best)


def _above(candidates: Sequence[Candidate], least: float) -> Iterator[dict[str, Any]]:
    yield from (_row(each) for each in candidates if each.reward >= least)


def _pairs(candidates: Sequence[Candidate], least: float) -> Iterator[dict[str, Any]]:
    best = max(candidates, key=_reward)
    # An environment may have begun other episodes of the problem with another observation.
    worst = min((each for each in candidates if each.prompt == best.prompt), key=_reward)
    if best.reward >= least and best.reward > worst.reward:
        yield {"prompt": best.prompt, "chosen": best.said, "rejected": worst.said}


def _unpaired(candidates: Sequence[Candidate], least: float) -> Iterator[dict[str, Any]]:
    yield from ({**_row(each), "label": each.reward >= least} for each in candidates)


def _row(one: Candidate) -> dict[str, Any]:
    return {"prompt": one.prompt, "completion": one.said, "reward": one.reward}


def _reward(candidate: Candidate) -> float:
    return candidate.reward


_KEEPING: Mapping[Keep, Callable[[Sequence[Candidate], float], Iterator[dict[str, Any]]]] = {
    "best": _best,
    "above": _above,
    "pairs": _pairs,
    "unpaired": _unpaired,
}
