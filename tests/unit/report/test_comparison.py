"""Runs beside each other, from the lines of their logs."""

import pytest

from mortal_steps.errors import DataError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.comparison import compare, picture
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.run_info import run_info


def run_of(folder, name, scores, tokens, **training):
    (folder / name).mkdir()
    config = RunConfig.model_validate({"rewards": {"functions": ["m:f"]}, "training": training})
    run = Run(RunStore(folder / name), config, run_info(folder))
    for step in range(1, 5):
        run.append("metrics.jsonl", {"step": step, "reward": 0.25, "num_sampled_tokens": tokens})
    for number, score in enumerate(scores):
        run.append("evaluations.jsonl", {"step": 2 * number, "reward": score, "f": score / 2})
    return run


@pytest.fixture
def runs(tmp_path):
    slow = run_of(tmp_path, "slow", [0.1, 0.2, 0.3], 100)
    fast = run_of(tmp_path, "fast", [0.1, 0.6, 0.5], 50, learning_rate=1e-4)
    return [slow, fast]


def test_each_run_has_what_it_reached_and_used(runs):
    slow, fast = compare(runs).runs
    assert (slow.best, slow.best_step, slow.last, slow.tokens) == (0.3, 4, 0.3, 400)
    assert (fast.best, fast.best_step, fast.last, fast.tokens) == (0.6, 2, 0.5, 200)
    assert compare(runs, "f").runs[1].best == 0.3


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder / "runs").mkdir(parents=True)
    paths = [tmp_path / "one" / "runs", tmp_path / "other" / "runs"]
    runs = [run_of(path, "run", [0.1], 100) for path in paths]
    assert [each.name for each in compare(runs).runs] == ["one/runs/run", "other/runs/run"]
    assert picture(runs, compare(runs), "tokens").startswith(b"\x89PNG")


def test_what_differs_in_their_configurations_is_named(runs):
    assert compare(runs).differences == {"training.learning_rate": [5e-6, 1e-4]}


def test_a_score_that_no_evaluation_has_is_named(runs):
    with pytest.raises(DataError, match=r"'g'; they have f, reward"):
        compare(runs, "g")


@pytest.mark.parametrize("by", ["tokens", "steps"])
def test_the_picture_is_one(runs, by):
    assert picture(runs, compare(runs), by).startswith(b"\x89PNG")
