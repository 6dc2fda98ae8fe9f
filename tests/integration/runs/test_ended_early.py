"""A run that ends before its last step, as `[training.until]` says: whole, and the same after a
kill."""

import inspect
from types import SimpleNamespace

import pytest

from mortal_flows import training
from mortal_steps.orchestration.session import Session
from mortal_steps.report.summary import summarize
from mortal_steps.runs.ending import Ended
from mortal_steps.runs.logs import USAGE
from mortal_steps.runs.run import Run, find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.serving.models import trained_model
from tests.support import bare_flow


def deadly(method, *, before, where=lambda *given, **named: True):
    """Return the method, which ends the process, as it were, before or after what it does."""
    if inspect.iscoroutinefunction(method):

        async def dying(self, *given, **named):
            at_hand = where(*given, **named)
            if at_hand and before:
                raise bare_flow.Killed
            done = await method(self, *given, **named)
            if at_hand:
                raise bare_flow.Killed
            return done

        return dying

    def dying_at_once(self, *given, **named):
        at_hand = where(*given, **named)
        if at_hand and before:
            raise bare_flow.Killed
        method(self, *given, **named)
        if at_hand:
            raise bare_flow.Killed

    return dying_at_once


def second_shard(role, method, *, request=None, **others):
    return method == "reward" and request.output == "evaluations/000002/rewards-1.parquet"


def step_2(step, weights):
    return step == 2


WINDOWS = {
    "before the evaluation": (Session, "evaluate", {"before": True, "where": step_2}),
    "in the evaluation": (bare_flow.InProcess, "call", {"before": True, "where": second_shard}),
    "after the evaluation": (Session, "evaluate", {"before": False, "where": step_2}),
    "before it is recorded": (Run, "end", {"before": True}),
    "after it is recorded": (Run, "end", {"before": False}),
}


def ended_run(folder, *, dies=None, **until):
    """Run in a folder until the second evaluation in a row is at the goal; with `dies`, killed once
    in that of `WINDOWS`."""
    folder.mkdir()
    until = until or {"goal": -1.0, "metric": "reward"}
    settings = {f"training.until.{name}": value for name, value in until.items()}
    config = bare_flow.project_config(folder, **settings, **{"checkpoints.save_steps": 3})
    with bare_flow.bare_in(folder):
        if dies is not None:
            owner, name, moment = WINDOWS[dies]
            with pytest.MonkeyPatch.context() as patch, pytest.raises(bare_flow.Killed):
                patch.setattr(owner, name, deadly(getattr(owner, name), **moment))
                bare_flow.go_on(config)
        bare_flow.go_on(config)
    return find_run(folder / "runs", "run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ended_run(tmp_path_factory.mktemp("ended") / "whole")


def test_it_is_complete_at_the_step_of_its_end(whole):
    why = "reward was at least -1 in 2 evaluations in a row"
    assert whole.ended == Ended(step=2, key="goal", why=why)
    assert whole.is_complete() and (whole.manifest.step, whole.num_steps) == (2, 2)
    assert [saved.step for saved in whole.manifest.checkpoints] == [2], "the last step is saved"
    assert trained_model(whole).step == 2
    assert [row["step"] for row in whole.metrics()] == [1, 2]
    assert whole.manifest.evaluation.step == 2
    headline = summarize(whole).headline
    assert headline.startswith("step 2/2, ") and f"ended as {why}" in headline
    assert [file for file in check_run(whole.store.root.parent, "run").files if file.damage] == []


@pytest.mark.parametrize("dies", WINDOWS)
def test_killed_as_it_ends_it_ends_at_the_same_step_with_the_same_bits(whole, tmp_path, dies):
    killed = ended_run(tmp_path / "killed", dies=dies)
    assert killed.ended == whole.ended and killed.manifest.attempts == 2
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    assert killed.metrics() == whole.metrics()


@pytest.fixture
def clock(monkeypatch):
    """The clock by which hours are counted; each look at it is `passes` seconds later."""
    now = SimpleNamespace(seconds=0.0, passes=900.0)

    def monotonic():
        now.seconds += now.passes
        return now.seconds

    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=monotonic))
    return now


def test_hours_are_those_in_which_it_was_driven(tmp_path, clock):
    """A quarter of an hour each step: half an hour is over at the first evaluation after it."""
    run = ended_run(tmp_path / "run", max_hours=0.5)
    assert run.ended == Ended(
        step=2, key="max_hours", why="it was driven for 0.50 hours (max_hours = 0.5)"
    )
    assert run.manifest.busy_s == 2 * 900
    used = [{"step": 1, "driven_s": 900.0}, {"step": 2, "driven_s": 1800.0}]
    assert run.logs.read(USAGE) == used, "and they are known of each step"


def test_what_the_clock_has_ended_stays_ended(tmp_path, clock):
    """The record is obeyed by a resume, whose clock says otherwise."""
    folder, close = tmp_path / "run", bare_flow.driver.open_session

    def standing_still(*given, **named):
        clock.passes = 900.0 if clock.seconds == 0 else 0.0
        return close(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bare_flow.driver, "open_session", standing_still)
        run = ended_run(folder, dies="after it is recorded", max_hours=0.5)
    assert (run.ended.step, run.ended.key) == (2, "max_hours")
    assert run.is_complete() and run.manifest.attempts == 2
