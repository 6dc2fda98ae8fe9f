"""A run on Modal that may cost so much and no more."""

import pytest

from mortal_steps.errors import RunStoppedError
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import find_run
from tests.support import bare_flow
from tests.support.modal.project import SHORT, project


def test_a_run_that_has_cost_enough_stops_with_its_state_saved(tmp_path):
    config = project(tmp_path, "dear", *SHORT, "compute.modal.max_cost=3")
    with bare_flow.bare_in(tmp_path) as patch:
        # Asked once the actor is ready, before each step, and three times after it: what was used,
        # may the next one begin, and what is left?
        paid = iter([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.5, 3.5])
        patch.setattr(bare_flow.InProcess, "spent", lambda self: next(paid))
        with pytest.raises(RunStoppedError, match=r"= 3 dollars \(3.50 spent\) after 2 of 4"):
            bare_flow.go_on(config)
    run = find_run(tmp_path / "runs", "dear")
    assert run.manifest.checkpoints[-1].step == 2
    told = [(notice.event, notice.step) for notice in read_notices(run.store)]
    assert told == [("mortal.budget.80", 2), ("mortal.run.stopped", 2)]
