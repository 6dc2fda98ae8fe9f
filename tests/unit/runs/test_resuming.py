"""Going on with a run by its id: which run it is, and what may be changed."""

from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError, RunNotFoundError
from mortal_steps.orchestration.open_run import resume_config
from mortal_steps.plan.loader import parse_config
from mortal_steps.runs.identity import write_identity
from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support.refused import refused


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A run that began in the folder `project`; this process works elsewhere."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(project)
    begun = parse_config({"run_id": "mine", "model": {"new": {}}, "training": {"max_steps": 9}})
    write_identity(RunStore(project / "runs" / "mine"), begun, [Problem(id="p", prompt="a")], [])
    monkeypatch.chdir(elsewhere)
    return project / "runs"


def test_a_run_goes_on_with_its_own_configuration_in_its_own_folder(runs):
    config = resume_config(Path("../project/runs"), "mine")
    assert (config.run_id, config.training.max_steps) == ("mine", 9)
    assert Path.cwd() == runs.parent
    assert Path(config.runs_dir).resolve() == runs


def test_an_id_that_no_run_has_is_refused_with_those_that_there_are(runs):
    with refused(RunNotFoundError, "'yours'", "mine"):
        resume_config(runs, "yours")
    with refused(RunNotFoundError, "'mien'", "mean mine?"):
        resume_config(runs, "mien")


def test_a_setting_that_affects_no_number_may_be_changed(runs):
    config = resume_config(runs, "mine", ["compute.modal.max_cost=30", "checkpoints.save_steps=2"])
    assert (config.compute.modal.max_cost, config.checkpoints.save_steps) == (30, 2)
    assert config.identity() == resume_config(runs, "mine").identity()


def test_how_weights_travel_and_are_judged_decides_no_bits(runs):
    config = resume_config(
        runs, "mine", ["rollout.canary_tolerance=0.5", "rollout.weight_sync='checkpoint'"]
    )
    assert config.rollout.canary_tolerance == 0.5
    assert config.rollout.weight_sync == "checkpoint"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("run_id=yours", "name another run than mine"),
        ("runs_dir=there", "leave run_id and runs_dir out"),
        ("training.max_step=2", "did you mean training.max_steps"),
    ],
)
def test_what_names_another_run_or_no_setting_is_refused(runs, override, told):
    with pytest.raises(ConfigError, match=told):
        resume_config(runs, "mine", [override])


def test_a_setting_that_decides_numbers_may_not_be_changed(runs):
    with refused(ConfigError, "learning_rate was ", "now 1.0", "`mortal fork mine"):
        resume_config(runs, "mine", ["training.learning_rate=1"])
