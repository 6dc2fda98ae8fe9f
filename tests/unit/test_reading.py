"""mortal.reading: runs looked at from Python, here the one that `make fixture` has left."""

import tarfile
from pathlib import Path

import pytest

import mortal
from mortal.errors import CorruptFileError, DataError, RunNotFoundError
from tests.support.begun_run import ARCHIVE
from tests.support.refused import refused


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "project" / "runs"


def test_the_runs_of_a_folder_are_listed_in_words(begun):
    (run,) = mortal.runs(begun)
    assert repr(run).startswith("<run run: interrupted, step 3/6, reward 0.")
    assert (run.run_id, run.status, run.step, run.num_steps) == ("run", "interrupted", 3, 6)
    assert run.path == begun / "run" and run.config.training.max_steps == 6


def test_metrics_evaluations_and_checkpoints_are_tables(begun):
    run = mortal.open_run("run", begun)
    metrics, evaluations, saved = run.metrics(), run.evaluations(), run.checkpoints()
    assert list(metrics["step"]) == [1, 2, 3] and metrics["loss"].notna().all()
    assert list(evaluations["step"]) == [0, 3] and evaluations["reward"].between(0, 1).all()
    (checkpoint,) = saved.to_dict("records")
    assert checkpoint["step"] == 2 and not checkpoint["best"]  # it has no evaluation
    assert (Path(checkpoint["path"]) / "model.safetensors").exists()


def test_the_completions_of_a_step_stand_beside_their_scores(begun):
    run = mortal.open_run(str(begun / "run"))
    second, last = run.rollouts(2), run.rollouts()
    metrics = run.metrics().set_index("step")
    for step, rollouts in ((2, second), (3, last)):
        assert set(rollouts["step"]) == {step} and len(rollouts) == 16
        assert rollouts["rewards/matches"].mean() == pytest.approx(metrics["reward"][step])
        assert rollouts["token_ids"].map(len).sum() == metrics["num_sampled_tokens"][step]
    with refused(DataError, "step 9", "1 to 3"):
        run.rollouts(9)


def test_damaged_completions_are_not_shown(begun, tmp_path):
    copy = tmp_path / "run"
    copy.mkdir()
    for path in begun.joinpath("run").rglob("*"):
        if path.is_file():
            to = copy / path.relative_to(begun / "run")
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
    file = copy / "steps" / "000002" / "rewards-1.parquet"
    file.write_bytes(file.read_bytes().replace(b"step", b"stop"))
    with pytest.raises(CorruptFileError, match="rewards-1"):
        mortal.open_run("run", tmp_path).rollouts(3)


def test_a_run_that_does_not_exist_is_an_error_that_names_those_that_do(begun):
    with pytest.raises(RunNotFoundError, match=r"'other'.*run"):
        mortal.open_run("other", begun)
