"""mortal_tasks.notices at the end of a run, while the server is too busy to answer in time."""

from types import SimpleNamespace

import httpx
import pytest
from prefect.logging import disable_run_logger

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.notices import new_notice, note, unsent
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_tasks import notices, reporter
from mortal_tasks.reporter import PrefectReporter
from tests.support.run_info import run_info


@pytest.mark.parametrize(("status", "left"), [("completed", 0), ("failed", 1)])
async def test_that_a_run_is_complete_is_told_until_the_server_takes_it(
    tmp_path, monkeypatch, status, left
):
    """Nothing else would ever tell, and the gate waits; a run that failed is continued, and tells
    then."""
    run = Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path))
    run.update(status=status)
    note(run, new_notice(run, "mortal.run.finished", "news", "trained", step=9))
    attempts = []

    async def busy(self, told):
        attempts.append([each.event for each in told])
        if len(attempts) < 3:
            raise httpx.ReadTimeout("no answer")
        return True

    monkeypatch.setattr(notices.NoticeEvents, "_post", busy)
    monkeypatch.setattr(notices, "CLOSING_RETRY_S", 0.01)
    monkeypatch.setattr(reporter.PrefectReporter, "refresh", _nothing)
    with disable_run_logger():
        server = SimpleNamespace(lost=False, away=False, forgotten=False)
        await PrefectReporter(run, server).show_end()
    assert len(unsent(run.store)) == left
    assert attempts == [["mortal.run.finished"]] * (3 if left == 0 else 1)


async def _nothing(self):
    pass
