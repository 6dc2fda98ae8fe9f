"""A run that stops, as it was told to, once nothing can be learned from its steps."""

import pytest

from mortal_steps.errors import RunStoppedError
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import find_run
from tests.support import bare_flow


def test_a_run_of_equal_rewards_stops_with_its_state_saved(tmp_path):
    (tmp_path / "same.py").write_text(
        "def same(completions, **kwargs):\n    return [0.0] * len(completions)\n"
    )
    config = bare_flow.project_config(
        tmp_path, **{"rewards.functions": '["same.py:same"]', "training.max_idle_steps": 3}
    )
    with bare_flow.bare_in(tmp_path):
        for _ in range(2):  # resumed with the same number, it stops where it was
            with pytest.raises(RunStoppedError, match=r"max_idle_steps = 3 .* after 3 of 6 steps"):
                bare_flow.go_on(config)
    run = find_run(tmp_path / "runs", config.run_id)
    assert run.manifest.checkpoints[-1].step == 3
    assert {notice.event for notice in read_notices(run.store)} == {
        "mortal.run.stopped",
        "mortal.run.resumed",
    }
