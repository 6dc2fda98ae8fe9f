"""What goes wrong in a run that really trains is noted, with its step."""

import pytest

from mortal.trainer.result import TrainingResult
from mortal_steps.errors import WeightsMismatchError
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import find_run
from tests.support import bare_flow
from tests.support.modal.project import SHORT, project

STALE = 3
FORGETS = f'''
class Forgetful:
    """Once the engine keeps the weights that it has."""

    releases_memory = False

    def load(self, engine, folder):
        if folder.name != "v{STALE}":
            engine.load(folder)
'''


ABSTAINS = """
def lottery(completions, **kwargs):
    return [None] * len(completions)
"""


def test_weights_that_never_arrived_are_noted(tmp_path):
    settings = {
        "compute.backend": "local",
        "evaluation.eval_steps": 0,
        "rollout.weight_sync": "forgets:Forgetful",
    }
    config = project(tmp_path, "run", *SHORT, *(f"{key}={is_}" for key, is_ in settings.items()))
    (tmp_path / "forgets.py").write_text(FORGETS)
    with bare_flow.bare_in(tmp_path) as patch:
        patch.syspath_prepend(tmp_path)
        told = rf"does not hold the tensors of .*v{STALE} "
        with pytest.raises(WeightsMismatchError, match=told):
            bare_flow.go_on(config)
    run = find_run(tmp_path / "runs", "run")
    assert run.manifest.step == STALE
    noted = {(notice.event, notice.step): notice for notice in read_notices(run.store)}
    mismatch = noted[("mortal.canary.mismatch", STALE)]
    assert f"weights/v{STALE}" in mismatch.text and "nothing was sampled" in mismatch.advice
    assert ("mortal.run.failed", STALE) in noted


def test_a_run_in_which_nothing_is_scored_says_so_and_so_does_trl(tmp_path):
    settings = (
        "compute.backend=local",
        "evaluation.eval_steps=0",
        "training.loss_type=dapo",
        "training.trl.importance_sampling_level=sequence",
    )
    config = project(tmp_path, "run", *SHORT, *settings)
    (tmp_path / "rewards.py").write_text(ABSTAINS)
    with bare_flow.bare_in(tmp_path) as patch:
        patch.syspath_prepend(tmp_path)
        bare_flow.go_on(config)
        run = find_run(tmp_path / "runs", "run")
        warned = [notice for notice in read_notices(run.store) if notice.level == "warning"]
        assert [(notice.event, notice.step) for notice in warned] == [
            ("mortal.training.warned", 0),
            ("mortal.training.warned", 1),
            ("mortal.reward.missing", 3),
            ("mortal.run.finished", 4),
        ]
        assert "weights each sequence by its completion length" in warned[0].text
        assert "All reward functions returned None" in warned[1].text
        assert "nothing was learned" in warned[-1].text
        assert run.status() == "completed"
        assert "nothing was learned" in repr(TrainingResult(run.store.root))
