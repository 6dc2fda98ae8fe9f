"""The end of a run before its last step, as `[training.until]` says."""

import functools
import logging
from typing import Any

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.session import Session
from mortal_steps.report.held_out import HeldOutScores
from mortal_steps.runs.ending import check_interval, decide, missing_metric
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import Run
from mortal_steps.system.threads import in_thread

logger = logging.getLogger(__name__)


async def check_goal(session: Session, done: int) -> HeldOutScores | None:
    """Raise `ConfigError` if the evaluation after `done` steps shows that the goal cannot be
    reached. Returns the scores that it is looked for in; None where their intervals do not
    matter."""
    run = session.run
    until = run.config.training.until
    if until.metric:
        _check_metric(run)
    if until.goal is None or until.by != "interval":
        return None
    scores = HeldOutScores(run)
    by_problem = await in_thread(functools.partial(scores.of, done))
    rows = [row for row in run.logs.read(EVALUATIONS) if row["step"] == done]
    if rows and by_problem is not None:
        check_interval(until, rows[-1], by_problem)
    return scores


def _check_metric(run: Run) -> None:
    """Raise `ConfigError` if the evaluations of a run that learns from rows do not have its metric:
    TRL always measures the same. Warn if a harness has not answered it: next time it may."""
    until, own, config = run.config.training.until, _own_evaluations(run), run.config
    if config.algorithm.judges_by_loss:
        if missing := missing_metric(until, own):
            raise ConfigError(missing)
        return
    named = {*config.evaluation.harnesses, *config.evaluation.sets, *run.info.eval_sets}
    of = [name for name in named if until.metric.startswith(f"eval_{name}_")]
    name = max(of, key=len, default="")  # "math_hard" and not "math"
    missing = missing_metric(until, own, f"eval_{name}_")
    if name in config.evaluation.harnesses and missing:
        logger.warning("%s", missing)


async def ends(session: Session, done: int) -> bool:
    """Decide whether the run ends after `done` steps, and record it if it does."""
    run, schedule = session.run, session.schedule
    until = run.config.training.until
    due = schedule.evaluates if schedule.holds_evaluations else schedule.checkpoints
    if run.ended is not None or not (until.ends and due(done)) or done == run.info.num_steps:
        return run.ended is not None and done == run.ended.step
    scores = await check_goal(session, done)
    lows = {}
    if scores is not None:
        found = await in_thread(functools.partial(scores.intervals, done))
        lows = {name: interval.low for name, interval in found.items()}
    metrics, first = run.metrics(), run.info.first_step
    ended = decide(
        until,
        done,
        metrics=[row for row in metrics if row["step"] > first],
        before=[row for row in metrics if row["step"] <= first],
        evaluations=_own_evaluations(run),
        dollars=session.budget.spent(),
        hours=run.manifest.busy_s / 3600,
        lows=lows,
    )
    if ended is not None:
        await in_thread(functools.partial(run.end, ended))
    return ended is not None


def _own_evaluations(run: Run) -> list[dict[str, Any]]:
    """Return the lines of a run's evaluations; a fork's parent may have had other rewards."""
    first = run.info.first_step
    return [row for row in run.logs.read(EVALUATIONS) if row["step"] > first or not first]
