"""Several runs beside each other: what each reached and used, and in what their configurations
differ."""

from __future__ import annotations

import io
import itertools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from mortal_steps.errors import DataError
from mortal_steps.report.curve import means, points
from mortal_steps.runs.costs import add_up
from mortal_steps.runs.logs import EVALUATIONS, USAGE
from mortal_steps.runs.manifest import has_merit, merit_of
from mortal_steps.runs.run import Run
from mortal_steps.scores import mean_of

if TYPE_CHECKING:  # slow to import, and needed for the picture
    from matplotlib.axes import Axes

By = Literal["tokens", "steps", "hours", "dollars"]
BYS: tuple[By, ...] = get_args(By)
AXES: Mapping[By, str] = {
    "tokens": "sampled tokens",
    "steps": "train steps",
    "hours": "hours of driving the run",
    "dollars": "dollars, estimated",
}
COUNTED: Collection[By] = ("tokens", "steps")
MISSING = "-"
WIDTH, HEIGHT, DPI = 9.0, 4.5, 110
MOST_TICKS = 6
FAR = 8.0
"""If a run has used this many times what every run has used, the picture is logarithmic beyond the
part that all runs share."""
LINEAR = 2.0
"""Width of its linear part, in decades of the other."""
NAME_CHARS = 32

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A run among others."""

    name: str
    """Its id; with the folder of its runs, if another has the same id."""
    run_id: str
    status: str
    steps: int
    tokens: int
    """Sampled or, where rows are learned, trained on."""
    hours: float | None
    """In which it was driven, and a fork's parent before; None where that was not counted."""
    dollars: float | None
    """What it has cost, and a fork's parent before, estimated; None where nothing cost anything."""
    merit: float | None
    """Mean reward of its last steps or, with the other sign, the loss."""
    best: float | None
    """The best of its evaluations, by the metric that they are compared by."""
    best_step: int | None
    last: float | None
    """The last of them."""
    at_same: float | None
    """The last of them with at most `Comparison.same`; None: none."""
    by_loss: bool = False
    """Whether `merit` is that of a loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    metric: str
    """Score of the evaluations that the runs are compared by."""
    by: By
    """What the runs are compared at the same amount of."""
    same: float
    """The most of it that all of them have used."""
    runs: Sequence[Compared]
    differences: Mapping[str, Sequence[Any]]
    """Each key of the configuration in which they differ, with the value of each run."""


def compare(runs: Sequence[Run], metric: str | None = None, by: By = "tokens") -> Comparison:
    """Compare at least two runs. Raises `DataError` for a metric that none has, and for hours or
    dollars that one of them lacks."""
    known = {key for run in runs for row in run.logs.read(EVALUATIONS) for key in row} - {"step"}
    newest = [row for run in runs for row in run.metrics()[-1:]]
    of_rows = all("num_prepared_rows" in row for row in newest) if newest else "loss" in known
    name = metric or ("loss" if of_rows and "reward" not in known else "reward")
    if metric is not None and metric not in known:
        there = ", ".join(sorted(known)) or "none"
        raise DataError(f"no evaluation has the score {metric!r}; they have {there}")
    names = _names(runs)
    used = [_used(run, each, by) for run, each in zip(runs, names, strict=True)]
    same = min(max(each.values()) for each in used)
    return Comparison(
        metric=name,
        by=by,
        same=same,
        runs=[
            _compared(run, each, name, amounts, same)
            for run, each, amounts in zip(runs, names, used, strict=True)
        ],
        differences=_differences([_flat(_decided_by(run)) for run in runs]),
    )


def _names(runs: Sequence[Run]) -> list[str]:
    ids = [run.info.run_id for run in runs]
    return [
        run.info.run_id
        if ids.count(run.info.run_id) == 1
        else _told_apart(run.store.root, [other.store.root for other in runs])
        for run in runs
    ]


def _told_apart(root: Path, others: Sequence[Path]) -> str:
    """Return the path of a run from the folder that all of them are in."""
    return str(root.resolve().relative_to(os.path.commonpath([o.resolve() for o in others])))


def _compared(run: Run, name: str, metric: str, used: Mapping[int, float], same: float) -> Compared:
    rows, judged = run.metrics(), run.logs.read(EVALUATIONS)
    steps, scores = points(judged, metric)
    lower = metric.endswith("loss")
    best = (min if lower else max)(filter(math.isfinite, scores), default=None)
    last = next(iter(run.logs.read(USAGE)[-1:]), {})  # of a fork, its parent's share is in it
    seconds = max(run.manifest.busy_s, last.get("driven_s", 0.0))
    costs = add_up(run.store.root)
    dollars = max(costs.total if costs else 0.0, last.get("dollars", 0.0))
    pairs = zip(steps, scores, strict=True)
    within = [score for step, score in pairs if used.get(step, math.inf) <= same]
    return Compared(
        name=name,
        run_id=run.info.run_id,
        status=run.status(),
        steps=run.manifest.step,
        tokens=_tokens(rows)[-1] if rows else 0,
        hours=seconds / 3600 or None,
        dollars=dollars or None,
        merit=mean_of(merit_of(row) for row in rows[-20:]),
        best=best,
        best_step=None if best is None else steps[scores.index(best)],
        last=scores[-1] if scores else None,
        at_same=within[-1] if within else None,
        by_loss=any(row.get("reward") is None and has_merit(row) for row in rows[-1:]),
    )


def _used(run: Run, name: str, by: By) -> Mapping[int, float]:
    """Return what a run had used at the end of each step. Raises `DataError` where that was not
    counted."""
    rows = run.metrics()
    if by == "steps":
        return {0: 0, **{row["step"]: row["step"] for row in rows}}
    if by == "tokens":
        return {0: 0, **dict(zip((row["step"] for row in rows), _tokens(rows), strict=True))}
    key, unit = ("driven_s", 3600.0) if by == "hours" else ("dollars", 1.0)
    usage = run.logs.read(USAGE)
    counted = not run.info.first_step or any(row["step"] <= run.info.first_step for row in usage)
    if not rows or (counted and any(key in row for row in usage)):
        return {0: 0, **{row["step"]: row.get(key, 0.0) / unit for row in usage}}
    why = "nothing that it uses has a price, as containers on Modal and judges with `prices` have"
    if by == "hours" or add_up(run.store.root) is not None:
        why = "they were not counted by step, as an earlier version drove it or a fork's parent"
    raise DataError(f"{name} has no {by}: {why}; compare by tokens or steps")


def _tokens(rows: Sequence[Row]) -> list[int]:
    """Return the tokens used up to each step."""
    if rows and "num_prepared_rows" in rows[-1]:
        return [int(row.get("num_tokens", 0)) for row in rows]
    used = [row.get("num_sampled_tokens", row.get("num_trained_tokens", 0)) for row in rows]
    return list(itertools.accumulate(used))


def _decided_by(run: Run) -> Mapping[str, Any]:
    """Return the keys that decide numbers, and those that decide how many steps there are."""
    identity = run.config.identity()
    until = run.config.training.until.model_dump(mode="json", exclude_defaults=True)
    return {**identity, "training": {**identity["training"], "until": until}}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values by dotted keys; a table in a list is named, or numbered."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            names = [one.get("name") for one in value]
            for number, one in enumerate(value):
                name = names[number] if names.count(names[number]) == 1 else None
                found |= _flat(one, f"{prefix}{key}[{name or number}].")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _differences(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    known = {key for config in configs for key in config}
    tables = {key for key in known if any(other.startswith(f"{key}.") for other in known)}
    keys = sorted(known - tables)  # a table that one run has empty is told by the others' keys
    values = {key: [config.get(key, MISSING) for config in configs] for key in keys}
    return {key: each for key, each in values.items() if any(one != each[0] for one in each)}


def picture(runs: Sequence[Run], comparison: Comparison) -> bytes:
    """Draw a PNG of training and of the held-out scores, against what they have used."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    training, held_out = figure.subplots(1, 2)
    by_loss = comparison.metric == "loss" or all(run.by_loss for run in comparison.runs)
    merit, most = "loss" if by_loss else "reward", 0.0
    for run, compared in zip(runs, comparison.runs, strict=True):
        used = _used(run, compared.name, comparison.by)
        most = max(most, *used.values())
        _draw(training, compared.name, run.metrics(), merit, used, smooth=True)
        _draw(held_out, compared.name, run.logs.read(EVALUATIONS), comparison.metric, used)
    training.set(title="training", ylabel=f"mean {merit}")
    held_out.set(title="held out", ylabel=comparison.metric)
    for axes in (training, held_out):
        axes.grid(alpha=0.3)
        axes.axvline(comparison.same, color="grey", linestyle=":", linewidth=1)
        _scale(axes, comparison, most)
    held_out.legend(loc="best", fontsize="x-small", framealpha=0.6)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    return drawn.getvalue()


def _scale(axes: Axes, comparison: Comparison, most: float) -> None:
    """Set up the axis of what was used. Where one run has used far more than another, what lies
    beyond the dotted line is logarithmic, so that there is something to see before it."""
    from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter

    label = AXES[comparison.by]
    if most > FAR * comparison.same > 0:
        axes.set_xscale("symlog", linthresh=comparison.same, linscale=LINEAR)
        axes.set_xlim(0, 1.2 * most)
        axes.set_xlabel(f"{label} (logarithmic beyond the dotted line)")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        axes.set_xlabel(label)
        whole = comparison.by in COUNTED
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=whole))
    if comparison.by in COUNTED:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _draw(
    axes: Axes,
    name: str,
    rows: Sequence[Row],
    key: str,
    used: Mapping[int, float],
    *,
    smooth: bool = False,
) -> None:
    steps, values = points([row for row in rows if row["step"] in used], key)
    where = [used[step] for step in steps]
    marker = "" if smooth else "o"
    label = name if len(name) <= NAME_CHARS else f"…{name[1 - NAME_CHARS :]}"
    axes.plot(where, means(values) if smooth else values, label=label, marker=marker)
