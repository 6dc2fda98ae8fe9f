"""What a run tells of itself is noted once, and told until somebody has taken it."""

import asyncio
import shutil
from dataclasses import replace

import pytest

from mortal_steps.errors import DataError, RunStoppedError, WeightsMismatchError
from mortal_steps.orchestration import driver
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.alerts import Alerts
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.report_files import write_report
from mortal_steps.runs.notices import (
    NOTICES,
    mark_sent,
    new_notice,
    note,
    read_notices,
    unsent,
)
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.bare_flow import InProcess
from tests.support.run_info import run_info


@pytest.fixture
def run(tmp_path):
    return opened(tmp_path)


def opened(folder, **info):
    (folder / "run").mkdir(exist_ok=True)
    return Run(RunStore(folder / "run"), RunConfig(), replace(run_info(folder), **info))


def some_notice(run, which=""):
    return new_notice(run, "mortal.reward.flat", "warning", "flat", step=3, value=1.0, which=which)


def test_a_fact_is_noted_once(run):
    assert note(run, some_notice(run))
    assert not note(run, some_notice(run))
    assert note(run, some_notice(run, which=4))
    assert [notice.title for notice in read_notices(run.store)] == ["reward flat"] * 2


def test_another_run_of_the_same_id_has_notices_of_its_own(run, tmp_path):
    other = opened(tmp_path, uid="1" * 32)
    assert some_notice(run).id != some_notice(other).id


def test_what_was_told_is_not_told_again(run):
    first, second = some_notice(run), some_notice(run, which=4)
    note(run, first)
    mark_sent(run.store, [first])
    note(run, second)
    assert unsent(run.store) == [second]
    assert read_notices(run.store) == [first, second]


def test_a_line_cut_short_costs_that_notice_alone(run):
    note(run, some_notice(run))
    path = run.store.path(NOTICES)
    path.write_bytes(path.read_bytes() + b'{"id": "cut')
    note(run, some_notice(run, which=4))
    assert len(read_notices(run.store)) == 2


def test_notices_that_cannot_be_written_end_no_run(run, caplog):
    shutil.rmtree(run.store.root)
    assert note(run, some_notice(run))
    assert "notices.jsonl cannot be written" in caplog.text


def metrics(*rewards, start=1):
    return [{"step": n, "reward": r} for n, r in enumerate(rewards, start=start)]


def test_a_run_that_goes_on_is_watched_from_where_it_stood(run, tmp_path):
    """What a killed process saw, and noted, is neither lost nor told again."""
    run.update(status="running")
    run.append("metrics.jsonl", *metrics(*[0.6] * 40))
    run.update(step=40)
    collapsed = metrics(*[0.0] * 12, start=41)
    first = Recorder(run).alerts
    for row in collapsed:
        first.step(row)
    [notice] = first.take()
    assert first.take() == []
    assert (notice.event, notice.step) == ("mortal.reward.collapsed", 50)

    again = Recorder(opened(tmp_path)).alerts
    for row in collapsed:
        again.step(row)
    assert again.take() == []
    run.store.path(NOTICES).unlink()  # killed just before it was noted
    late = Alerts(opened(tmp_path))
    for row in collapsed:
        late.step(row)
    assert [found.id for found in late.take()] == [notice.id]


def test_the_report_lists_what_is_wrong(run):
    run.update(status="running")
    note(run, some_notice(run))
    note(run, new_notice(run, "mortal.run.resumed", "news", "again", step=3))
    write_report(run)
    report = run.store.path("report.md").read_text()
    assert "- step 3, reward flat: `flat`" in report
    assert "run resumed" not in report


@pytest.fixture
def ended(run, monkeypatch):
    """Events of the notices of an attempt that ends with an error, or well."""

    def end(error=None):
        async def drive():
            async with driver.open_session(run, local=InProcess):
                if error is not None:
                    raise error

        known = len(read_notices(run.store))
        try:
            asyncio.run(drive())
        except type(error) as raised:
            assert raised is error
        return read_notices(run.store)[known:]

    monkeypatch.setattr(driver, "worker_specs", lambda *_, **__: {})
    monkeypatch.setattr(driver, "note_sources", lambda *_: None)
    monkeypatch.setattr(driver, "first_model", lambda *_: "")
    return end


def test_every_attempt_tells_how_it_began_and_ended(ended):
    def events(error=None):
        return [notice.event.removeprefix("mortal.") for notice in ended(error)]

    assert events(RunStoppedError("by SIGINT")) == ["run.stopped"]
    assert events(DataError("bad row")) == ["run.resumed", "run.failed"]
    assert events(DataError("bad row")) == ["run.resumed", "run.failed"]
    mismatch = WeightsMismatchError("differs")
    assert events(mismatch) == ["run.resumed", "canary.mismatch", "run.failed"]
    assert events() == ["run.resumed", "run.finished"]


def test_a_failure_says_what_failed_and_how_to_go_on(run, ended):
    [failed] = ended(DataError("bad row" + "!" * 5000))
    assert failed.level == "failure"
    assert failed.text.startswith("bad row!!!")
    assert len(failed.text) < 1300
    assert f"`mortal resume {run.store.root}`" in failed.advice
