"""What a user has who installs a wheel: no checkout, and folders of the project's names."""

import subprocess
import sys

import mortal_steps
from mortal_steps.data.problem_files import ProblemFile
from mortal_steps.runs.run import find_run
from tests.support.paths import ROOT
from tests.support.wheel import FOLDERS, environment, names, project, python, run, wheel

__all__ = ["environment", "names", "project", "python", "run", "wheel"]


def test_a_wheel_takes_no_name_that_a_project_may_have_for_a_folder_of_its_own(names):
    packages = {name.partition("/")[0] for name in names}
    assert all(name.startswith("mortal") for name in packages), packages


def test_a_wheel_holds_every_module(names):
    modules = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    renamed = {
        f"mortal_{name}" if name.startswith(("flows", "tasks", "deployments")) else name
        for name in modules
    }
    assert renamed <= names


def test_a_wheel_holds_what_images_are_built_from(names):
    files = {f"mortal_deployments/requirements/{p.name}" for p in ROOT.glob("requirements/*.txt")}
    assert files <= names


def test_pip_finds_all_that_the_wheel_asks_for(python):
    check = [sys.executable, "-m", "pip", "--python", python, "check"]
    said = subprocess.run(check, capture_output=True, text=True).stdout
    assert not [line for line in said.splitlines() if "mortal-rl" in line], said


def test_the_wheel_brings_the_command(python, project):
    said = subprocess.check_output([python.parent / "mortal", "--version"], cwd=project, text=True)
    assert mortal_steps.__version__ in said


def test_mortal_train_scores_with_the_users_own_package(run, project):
    run("mortal", "train", "tiny.toml", "--run-id", "trained")
    trained = find_run(project / "runs", "trained")
    assert trained.manifest.status == "completed"
    assert len(ProblemFile(trained.store.path("data/train.arrow"))) == trained.info.num_problems
    assert [row["rewards/matches/mean"] for row in trained.metrics()]


def test_a_task_of_reasoning_gym_without_the_extra_is_refused_with_the_remedy(run, project):
    source = "data.source=reasoning_gym:spell_backward"
    said = run("mortal", "train", "tiny.toml", "--run-id", "spelled", "--set", source, code=1)
    assert "data.source = 'reasoning_gym:spell_backward'" in said
    assert "pip install 'reasoning-gym==0.1.25'" in said
    assert not (project / "runs" / "spelled").exists()
