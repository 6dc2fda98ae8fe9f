"""Notices that a run has begun or ended."""

from __future__ import annotations

from mortal_steps.errors import WeightsMismatchError
from mortal_steps.report.alerts import as_argument
from mortal_steps.report.markdown import shortened
from mortal_steps.report.printable import printable
from mortal_steps.report.summary import summarize
from mortal_steps.runs.notices import Level, new_notice, note
from mortal_steps.runs.run import Run


def note_begun(run: Run) -> None:
    """Note that a process drives the run; news if another one did before."""
    attempt, step = run.manifest.attempts, run.manifest.step
    if attempt > 1:
        text = f"continued at step {step} (attempt {attempt})"
        event = "mortal.run.resumed"
        note(run, new_notice(run, event, "news", text, step=step, value=attempt, which=attempt))


def note_finished(run: Run) -> None:
    """Note that the run is trained and its model saved; this is a warning if it learned nothing."""
    summary = summarize(run)
    advice = f"the trained model is in {summary.model_path}"
    if summary.learned_nothing:
        advice = (
            "every reward function returned None for every completion, or failed and was masked: "
            f"read the completions (`mortal samples {as_argument(run)}`) and call the "
            f"functions with them (`mortal test-reward`). {advice}"
        )
    notice = new_notice(
        run,
        "mortal.run.finished",
        "warning" if summary.learned_nothing else "news",
        summary.headline,
        step=summary.step,
        value=summary.reward,
        advice=advice,
    )
    note(run, notice)


def note_ended_early(run: Run, error: BaseException) -> None:
    """Note that the run was stopped or has failed, as its manifest says, by `error`."""
    attempt, step, resume = run.manifest.attempts, run.manifest.step, _resume(run)
    text = shortened(printable(run.manifest.error or repr(error)))

    def tell(event: str, level: Level, advice: str) -> None:
        note(run, new_notice(run, event, level, text, step=step, advice=advice, which=attempt))

    if isinstance(error, WeightsMismatchError):
        advice = f"nothing was sampled with these weights; remove the cause, then {resume}"
        tell("mortal.canary.mismatch", "failure", advice)
    if run.manifest.status == "failed":
        tell("mortal.run.failed", "failure", f"remove the cause, then {resume}")
    else:
        tell("mortal.run.stopped", "news", resume)


def _resume(run: Run) -> str:
    return f"`mortal resume {as_argument(run)}` continues it"
