"""The end of a run before its last step, as `[training.until]` says."""

import functools
from typing import Any

from mortal_steps.orchestration.session import Session
from mortal_steps.report.held_out import HeldOutScores
from mortal_steps.runs.ending import check_interval, check_metric, decide
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import Run
from mortal_steps.system.threads import in_thread


async def check_goal(session: Session, done: int) -> HeldOutScores | None:
    """Raise `ConfigError` if the evaluation after `done` steps shows that the goal cannot be
    reached. Returns the scores that it is looked for in; None where their intervals do not
    matter."""
    run = session.run
    until = run.config.training.until
    if until.metric:
        config, own = run.config, _own_evaluations(run)
        named = [f"eval_{name}_" for name in config.evaluation.harnesses]
        for begins in [""] if config.algorithm.judges_by_loss else named:
            check_metric(until, own, begins)
    if until.goal is None or until.by != "interval":
        return None
    scores = HeldOutScores(run)
    by_problem = await in_thread(functools.partial(scores.of, done))
    rows = [row for row in run.logs.read(EVALUATIONS) if row["step"] == done]
    if rows and by_problem is not None:
        check_interval(until, rows[-1], by_problem)
    return scores


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
    ended = decide(
        until,
        done,
        metrics=[row for row in run.metrics() if row["step"] > run.info.first_step],
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
