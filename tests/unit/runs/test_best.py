"""Which checkpoint is the best one: rewards of training and of evaluations are never compared."""

import dataclasses

import pytest

from mortal_steps.config import CheckpointsConfig
from mortal_steps.orchestration.checking.checks import warn_of_unjudged_checkpoints
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.report.status import status_of
from mortal_steps.runs.logs import EVALUATIONS, METRICS
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import Checkpoint, Evaluation, StageTiming
from mortal_steps.types.identity import Parent
from tests.support.run_info import run_info


def timing(stage, step):
    return StageTiming(stage=stage, step=step)


def saved(step):
    of = timing("checkpoint", step)
    return Checkpoint(step=step, path=checkpoints.path_of(step), sha256="", state_id="", timing=of)


@pytest.fixture
def begin(tmp_path):
    """Open the run of this folder: one that saves each step and keeps the newest checkpoint."""

    def open_it(evaluation=None, info=None):
        checks = {"save_steps": 1, "keep_last": 1}
        config = RunConfig.model_validate(
            {"checkpoints": checks, "evaluation": evaluation or {"eval_steps": 2}}
        )
        (tmp_path / "run").mkdir(exist_ok=True)
        return Run(RunStore(tmp_path / "run"), config, info or run_info(tmp_path))

    return open_it


def pass_steps(run, trained, evaluated=None):
    """Take a step and save for each training reward; `evaluated`: rewards by step, None: nothing
    was scored."""
    for step, reward in enumerate(trained, start=1):
        run.append(METRICS, {"step": step, "reward": reward})
        if step in (evaluated or {}):
            judged = evaluated[step]
            metrics = {} if judged is None else {"reward": judged}
            run.append(EVALUATIONS, {"step": step, **metrics})
            run.note(
                evaluation=Evaluation(
                    step=step, num_problems=1, metrics=metrics, timing=timing("evaluate", step)
                )
            )
        run.note_checkpoint(saved(step), run.score(step))
        run.update(step=step)
    return run


def best(run):
    return run.manifest.best_step, run.manifest.best_reward


def test_evaluations_are_compared_with_evaluations(begin):
    run = pass_steps(begin(), [6.75, 3.0, 7.0, 3.0, 8.0], {2: 0.25, 4: 0.75})
    assert [run.score(step) for step in (1, 4, 5)] == [None, 0.75, None]
    assert best(run) == (4, 0.75)
    assert [one.step for one in run.manifest.checkpoints] == [4, 5]
    assert status_of(run).best_step == 4


def test_the_first_of_equal_evaluations_is_the_best_and_an_empty_one_is_none(begin):
    run = pass_steps(begin(), [6.0] * 8, {2: None, 4: -1.5, 6: -1.5, 8: float("nan")})
    assert best(run) == (4, -1.5)


def test_a_run_whose_evaluations_score_nothing_has_no_best(begin):
    assert best(pass_steps(begin(), [6.0] * 4, {2: None, 4: None})) == (None, None)


def test_training_rewards_count_in_a_run_without_evaluations(begin):
    run = pass_steps(begin({"eval_steps": 0}), [-3.0, None, -2.0, -4.0])
    assert run.score(2) is None, "nothing was scored: that is no 0"
    assert best(run) == (3, -2.0)


def test_the_training_reward_is_of_the_steps_since_the_checkpoint_before(begin):
    run = begin({"eval_steps": 0})
    run.config.checkpoints.__dict__["save_steps"] = 4
    for step in range(1, 10):
        run.append(METRICS, {"step": step, "reward": float(step)})
    assert run.score(8) == 6.5
    assert run.score(9) == 9.0, "of the last step alone"


def test_a_run_that_compared_both_finds_its_best_evaluated_checkpoint(begin):
    run = pass_steps(begin(), [6.75, 3.0, 7.0, 3.0, 8.0], {2: 0.25, 4: 0.75})
    run.update(checkpoints=(saved(1), saved(4), saved(5)), best_step=1, best_reward=6.75)
    checkpoints.mark_best(run.store, 1, 6.75)
    again = begin()
    assert best(again) == (4, 0.75)
    again.acquire()
    again.release()
    assert checkpoints.find_best(again.store) == checkpoints.BestCheckpoint(step=4, score=0.75)
    again.update(checkpoints=(saved(5),), best_step=1, best_reward=6.75)
    assert best(begin()) == (None, None)
    last = begin()
    last.acquire()
    last.release()
    assert checkpoints.find_best(last.store) is None


def test_a_damaged_log_of_evaluations_changes_no_best(begin):
    run = pass_steps(begin(), [6.0] * 5, {2: 0.25, 4: 0.75})
    path = run.store.path(EVALUATIONS)
    path.write_text(path.read_text().replace('"step": 4', '"stop": 4'))
    assert best(begin()) == (4, 0.75)


def test_the_first_evaluated_checkpoint_takes_the_place_of_one_that_was_never_evaluated(begin):
    run = begin()
    run.update(checkpoints=(saved(1),), best_step=1, best_reward=6.75, step=1)
    run.append(EVALUATIONS, {"step": 2, "reward": 0.5})
    assert run.is_best(0.5)
    run.note_checkpoint(saved(2), 0.5)
    assert best(run) == (2, 0.5)


def test_a_fork_without_evaluations_ignores_those_of_its_parent(begin, tmp_path):
    parent = Parent(run_id="p", uid="1" * 32, step=2, state_id="", fingerprint="f", history_id="")
    info = dataclasses.replace(run_info(tmp_path), parent=parent)
    run = begin({"eval_steps": 0}, info)
    run.append(EVALUATIONS, {"step": 0, "reward": 0.5}, {"step": 2, "reward": 0.75})
    run.update(checkpoints=(saved(2), saved(3)), best_step=3, best_reward=6.5, step=3)
    assert best(begin({"eval_steps": 0}, info)) == (3, 6.5)


@pytest.mark.parametrize(("fingerprint", "score"), [("other", 0.5), ("f", 25.25)])
def test_rewards_of_a_forks_parent_are_in_no_score_of_its_own_unless_they_are_the_same(
    begin, tmp_path, fingerprint, score
):
    names = {"run_id": "p", "uid": "1" * 32, "state_id": "", "history_id": ""}
    parent = Parent(**names, step=2, fingerprint=fingerprint)
    run = begin({"eval_steps": 0}, dataclasses.replace(run_info(tmp_path), parent=parent))
    run.config.checkpoints.__dict__["save_steps"] = 4
    for step, reward in enumerate([50.0, 50.0, 0.25, 0.75], start=1):
        run.append(METRICS, {"step": step, "reward": reward})
    assert run.score(4) == score
    assert run.score(2) == 50.0, "of the checkpoint that it begins with"


@pytest.mark.parametrize(
    ("save", "every", "told"),
    [
        (1, 2, "2 of the 4 checkpoints before the end"),
        (3, 2, "1 of the 1 checkpoint before the end"),
        (2, 2, ""),
        (4, 2, ""),
        (1, 0, ""),
        (1, None, ""),
    ],
)
def test_a_run_says_before_it_begins_which_checkpoints_cannot_be_the_best(
    caplog, save, every, told
):
    warn_of_unjudged_checkpoints(CheckpointsConfig(save_steps=save), every, 5)
    assert told in caplog.text and bool(told) == bool(caplog.text)
