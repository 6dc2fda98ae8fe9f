"""What goes wrong in a run that really trains is noted, with its step."""

import asyncio

import pytest

from mortal.trainer.result import TrainingResult
from mortal_steps.errors import WeightsMismatchError
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import find_run
from tests.support import bare_flow
from tests.support.modal.project import SHORT, project

SLOW, STALE = 11, 12
HANGS = f'''
import statistics
import time

BEGUN = {{}}

def lottery(completions, answer, trainer_state, **kwargs):
    """Other for nearly every completion; once a judge is slow, however slow the machine is."""
    step = trainer_state.global_step
    BEGUN.setdefault(step, time.monotonic())
    if step == {SLOW - 1}:
        usual = statistics.median(BEGUN[n + 1] - BEGUN[n] for n in range(step))
        time.sleep(max(4.0, 10 * usual))
    return [sum(map(ord, text + right)) % 11 / 10 for text, right in zip(completions, answer)]
'''
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


class Beside(bare_flow.InProcess):
    """The flow goes on while rewards are computed, one shard after the other, as it does beside a
    process."""

    def __init__(self, specs, **options):
        super().__init__(specs, **options)
        self._turn = asyncio.Lock()

    async def call(self, role, method, **asked):
        called = super().call(role, method, **asked)
        if role != "reward":
            return await called
        async with self._turn:
            return await asyncio.to_thread(asyncio.run, called)


def test_a_slow_step_and_weights_that_never_arrived_are_noted(tmp_path):
    settings = {
        "compute.backend": "local",
        "training.max_steps": 50,
        "evaluation.eval_steps": 0,
        "rollout.weight_sync": "forgets:Forgetful",
        "alerts.slow_step_s": 0.5,
        "alerts.quiet_steps": 0,
    }
    config = project(tmp_path, "run", *SHORT, *(f"{key}={is_}" for key, is_ in settings.items()))
    (tmp_path / "rewards.py").write_text(HANGS)
    (tmp_path / "forgets.py").write_text(FORGETS)
    with bare_flow.bare_in(tmp_path) as patch:
        patch.syspath_prepend(tmp_path)
        patch.setattr(bare_flow, "InProcess", Beside)
        told = rf"does not hold the tensors of .*v{STALE} "
        with pytest.raises(WeightsMismatchError, match=told):
            bare_flow.go_on(config)
    run = find_run(tmp_path / "runs", "run")
    assert run.manifest.step == STALE
    noted = {(notice.event, notice.step): notice for notice in read_notices(run.store)}
    assert noted[("mortal.step.slow", SLOW)].value >= 4.0
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
