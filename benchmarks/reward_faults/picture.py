"""The picture: a run whose verifier breaks down, masked and scored 0, beside an undisturbed one.

All are real `mortal train` commands. What is drawn is the true reward of what was sampled: the
letters in their place, of every completion, whatever the run was told of it; and, dashed, what the
log of the run says that scored failures 0.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import ROOT
from benchmarks.killed_picture import WINDOW, Ground, running_means
from benchmarks.reward_faults.verifier import letters
from mortal_steps.store import RunStore
from mortal_steps.types import GeneratedShard

PICTURE = ROOT / "docs" / "pictures" / "false_zeros.svg"
VERIFIER = "benchmarks/reward_faults/verifier.py"
UNDISTURBED, MASKED, AS_0 = "no fault", "masked", "scored 0"
FAULTS = {
    "lost_at_random": "half of the checks are lost",
    "lost_when_right": "checks of right answers are lost",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One run."""

    function: str
    true: list[float]
    """Mean reward of the completions of each step, as a verifier without faults gives it."""
    told: list[float]
    """Mean reward of each step in the run's own metrics."""
    num_scored: int
    """Completions that had a score."""

    @property
    def last(self) -> float:
        """True reward of the last steps."""
        return statistics.fmean(self.true[-WINDOW:])


def train_all(steps: int) -> dict[str, Arm]:
    """Every run, one after the other, by the name of its reward function."""
    with tempfile.TemporaryDirectory(prefix="mortal-picture-") as folder:
        ground = Ground(Path(folder), steps)
        functions = ["letters", *(name + end for name in FAULTS for end in ("", "_as_0"))]
        return {function: _train(ground, function) for function in functions}


def _train(ground: Ground, function: str) -> Arm:
    settings = {
        "rewards.functions": f'["{VERIFIER}:{function}"]',
        "rewards.on_error": "mask",
        "rewards.retries": 1,
        "evaluation.functions": '["mortal.rewards.functions:exact_match"]',
    }
    run_id = function.replace("_", "-")
    told = ground.train(run_id, [], [f"{name}={value}" for name, value in settings.items()])
    metrics = ground.metrics(run_id)
    return Arm(
        function=function,
        true=_true_rewards(ground.run_dir(run_id)),
        told=told.rewards,
        num_scored=sum(row["num_scored"] for row in metrics),
    )


def _true_rewards(run_dir: Path) -> list[float]:
    store = RunStore(run_dir)
    steps = sorted((run_dir / "steps").iterdir())
    return [statistics.fmean(_true_reward(store, step)) for step in steps]


def _true_reward(store: RunStore, step: Path) -> list[float]:
    found = []
    for path in step.glob("generations-*.parquet"):
        shard = store.find_record(str(path.relative_to(store.root)), GeneratedShard)
        assert shard is not None  # the glob has seen it
        for group in shard[1].groups:
            texts = [completion.text for completion in group.completions]
            found += letters(texts, [str(group.problem.columns["answer"])] * len(texts))
    return found


def draw(path: Path, arms: dict[str, Arm]) -> None:
    """One panel per way to break down; SVG, or what the name of the file ends in."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    panels = figure.subplots(1, len(FAULTS), sharey=True)
    for axes, (fault, title) in zip(panels, FAULTS.items(), strict=True):
        looks = (
            (arms["letters"], UNDISTURBED, {"color": "#9ecae1", "linewidth": 6}),
            (arms[fault], f"{MASKED} (MORTAL)", {"color": "#08306b", "linewidth": 1.8}),
            (arms[f"{fault}_as_0"], AS_0, {"color": "#d94801", "linewidth": 1.8}),
        )
        for arm, label, look in looks:
            means = running_means(arm.true)
            axes.plot(range(1, len(means) + 1), means, label=label, **look)
        told = running_means(arms[f"{fault}_as_0"].told)
        label = f"what the log says, {AS_0}"
        look = {"color": "#d94801", "linewidth": 1.2, "linestyle": (0, (2, 2))}
        axes.plot(range(1, len(told) + 1), told, label=label, **look)
        axes.set_title(f"in 3 of 10 problems, {title}", fontsize=9)
        axes.set(xlabel="train step", xlim=(1, len(arms["letters"].true)), ylim=(0, 1))
        axes.grid(alpha=0.25)
    panels[0].set_ylabel(f"true reward, mean of {WINDOW} steps")
    panels[0].legend(loc="upper left", fontsize=8, framealpha=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".")
    # Without a date and with fixed ids, the same runs give the same file.
    with rc_context({"svg.hashsalt": "mortal"}):
        figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None)
