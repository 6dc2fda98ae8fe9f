"""Compares the candidate with the model in use: numbers, a verdict by a threshold, and a page to
read."""

from collections.abc import Mapping
from dataclasses import dataclass

from mortal_steps.registry.registry import ModelVersion
from mortal_steps.report.held_out import REWARD, paired_text
from mortal_steps.report.markdown import code, table
from mortal_steps.report.units import counted
from mortal_steps.statistics.paired import Paired


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Comparison:
    """Two models on the same held-out problems."""

    candidate: ModelVersion
    metrics: Mapping[str, float]
    """The candidate's scores, as in `Evaluation`."""
    incumbent: ModelVersion | None
    """The model in use; None for the first one."""
    against: Mapping[str, float] | None
    """The scores to beat: the incumbent's or, for the first one, what the candidate's run scored
    before its first step; None if there are none."""
    num_problems: int
    paired: Paired | None = None
    """The rewards of both, problem by problem; None where the scores to beat are not known so."""
    decides: str = ""
    """The set whose reward decides, where one was named."""

    @property
    def gain(self) -> float | None:
        """How much higher the candidate's reward is; None if one of them has no reward."""
        against = self.against
        if against is None or REWARD not in against or REWARD not in self.metrics:
            return None
        return self.metrics[REWARD] - against[REWARD]


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Verdict:
    """Whether a model is put to use."""

    promote: bool
    why: str


def by_threshold(comparison: Comparison, min_gain: float, command: str) -> Verdict:
    """Promote what is shown to be better by more than `min_gain`: by the lower end of the interval
    of the gain on the same problems. Without one, by the gain itself, which has to be `min_gain` or
    more. A first model without an evaluation before its first step has nothing to beat; against a
    model in use that has no reward, nothing is shown, and a person may promote by `command`."""
    reward, gain, paired = comparison.metrics.get(REWARD), comparison.gain, comparison.paired
    of = f" on {comparison.decides}" if comparison.decides else ""
    if reward is None:
        return Verdict(promote=False, why="the candidate has no reward: nothing could be scored")
    if gain is None and comparison.incumbent is not None:
        why = (
            f"{comparison.incumbent.id}, in use, has no reward on these problems: nothing is "
            f"shown; look at both models, and promote this one by `{command} --yes`"
        )
        return Verdict(promote=False, why=why)
    if gain is None:
        return Verdict(promote=True, why=f"reward{of} {reward:.4f}, and nothing to compare it with")
    if paired is None or paired.low is None:
        better = gain >= min_gain
        relation = "at least" if better else "less than"
        why = f"gain {gain:+.4f}, {relation} {min_gain:+.4f}; there is no interval"
    else:
        better = paired.low > min_gain
        relation = "above" if better else "not above"
        why = f"{paired_text(paired)}; the lower end is {relation} {min_gain:+.4f}"
    return Verdict(promote=better, why=f"reward{of} {reward:.4f}, {why}")


def comparison_table(comparison: Comparison) -> str:
    """Return a line for each metric, as Markdown."""
    other = "incumbent" if comparison.incumbent else "before training"
    rows = [(code(name), *numbers) for name, *numbers in metric_rows(comparison)]
    return table(["", "candidate", other, "difference"], rows, "lrrr")


def metric_rows(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """Return each metric with both values and their difference, the reward first."""
    against = comparison.against or {}
    return [
        (name, _number(value), _number(against.get(name)), _difference(value, against, name))
        for name, value in sorted(comparison.metrics.items(), key=_reward_first)
    ]


def comparison_page(comparison: Comparison, name: str, outcome: str) -> str:
    """Return all that a person needs to decide; `outcome`: what is decided so far."""
    models = {"candidate": comparison.candidate, "incumbent": comparison.incumbent}
    rows = [
        [role, code(version.run_id), code(version.weights_sha256[:12])]
        for role, version in models.items()
        if version is not None
    ]
    parts = [
        f"# Promotion of {code(comparison.candidate.run_id)} to {code(name)}",
        outcome,
        comparison_table(comparison),
        comparison_text(comparison),
        table(["", "run", "weights"], rows, "lll"),
    ]
    return "\n\n".join(parts) + "\n"


def comparison_text(comparison: Comparison) -> str:
    """Say on what the models were compared, and what follows for their rewards."""
    problems = counted(comparison.num_problems, "held-out problem")
    said = (
        f"{problems if comparison.num_problems else 'The problems of harnesses'}, the same for "
        "both models, with the same settings."
    )
    if comparison.decides:
        said = f"{said} The reward is that of the set {comparison.decides}, which decides."
    if comparison.paired is None:
        return said
    return f"{said} The candidate's reward: {paired_text(comparison.paired)}."


def _reward_first(metric: tuple[str, float]) -> tuple[bool, str]:
    return metric[0] != REWARD, metric[0]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _difference(value: float, against: Mapping[str, float], name: str) -> str:
    return f"{value - against[name]:+.4f}" if name in against else "-"
