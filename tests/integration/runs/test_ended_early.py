"""A run that ends before its last step, as `[training.until]` says: whole, and the same after a
kill."""

import pytest

from mortal_steps.report.summary import summarize
from mortal_steps.runs.ending import Ended
from mortal_steps.runs.run import Run, find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.serving.models import trained_model
from tests.support import bare_flow


def ended_run(folder, *, dies=None):
    """Run in a folder until the second evaluation in a row is at the goal; with `dies`, once killed
    when the end is decided and `before` or `after` it is recorded."""
    folder.mkdir()
    until = {"training.until.goal": -1.0, "training.until.metric": "reward"}
    config = bare_flow.project_config(folder, **until, **{"checkpoints.save_steps": 3})
    with bare_flow.bare_in(folder) as patch:
        if dies is not None:
            record = Run.end

            def dying(self, ended):
                if dies == "after":
                    record(self, ended)
                raise bare_flow.Killed

            patch.setattr(Run, "end", dying)
            with pytest.raises(bare_flow.Killed):
                bare_flow.go_on(config)
            patch.setattr(Run, "end", record)
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


@pytest.mark.parametrize("dies", ["before", "after"])
def test_killed_as_it_ends_it_ends_at_the_same_step_with_the_same_bits(whole, tmp_path, dies):
    killed = ended_run(tmp_path / "killed", dies=dies)
    assert killed.ended == whole.ended and killed.manifest.attempts == 2
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    assert killed.metrics() == whole.metrics()
