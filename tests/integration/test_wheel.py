"""What a user has who installs a wheel: no checkout, and folders of the project's names."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from mortal_steps.data.problem_files import ProblemFile
from mortal_steps.runs.run import find_run
from tests.modal_plane.isolation import check_namespaces
from tests.modal_plane.plane import ModalPlane
from tests.support.deployments import PATIENCE_S, Prefect
from tests.support.modal.sources import hidden_sources
from tests.support.paths import ROOT
from tests.support.project import write_project
from tests.support.server import server_of_its_own

FOLDERS = ("mortal", "mortal_steps", "flows", "tasks", "deployments")
"""Of the packages; the last three are installed under other names."""
HIDING = ("datasets.py", "random.py")
"""Modules of a project that neither MORTAL nor Prefect takes for others."""
NOT_BORROWED = ("mortal", "__editable__", "reasoning_gym", "wandb")
NOT_OURS = 'raise RuntimeError("this is the user\'s, and MORTAL has no business with it")\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    sources = tmp_path_factory.mktemp("wheel") / "sources"
    for name in (*FOLDERS, "requirements"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    build = [sys.executable, "-c", "import setuptools.build_meta as b; b.build_wheel('.')"]
    done = subprocess.run(build, cwd=sources, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = sources.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def names(wheel):
    """What the wheel holds."""
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an environment of its own with the wheel; what the project depends on is
    borrowed from this one, its editable installation and its extras are not."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    zipfile.ZipFile(wheel).extractall(packages)
    for place in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for entry in place.iterdir():
            borrowed = packages / entry.name
            known = entry.suffix == ".pth" or entry.name.startswith(NOT_BORROWED)
            if not known and not borrowed.exists():  # else an earlier place has it
                borrowed.symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a `tasks` package that scores, and modules that hide those of MORTAL and of
    the standard library for whoever looks into the working folder first."""
    folder = tmp_path_factory.mktemp("project")
    config = write_project(folder)
    (folder / "tasks").mkdir()
    (folder / "rewards.py").rename(folder / "tasks" / "rewards.py")
    (folder / "tasks" / "__init__.py").write_text("")
    for name in ("flows", "deployments"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(NOT_OURS)
    for name in HIDING:
        (folder / name).write_text(NOT_OURS)
    text = config.read_text().replace("rewards.py:matches", "tasks.rewards:matches")
    config.write_text(text.replace("max_steps = 5", "max_steps = 2"))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with server_of_its_own(tmp_path_factory.mktemp("state")) as running:
        yield running


@pytest.fixture(scope="module")
def environment(server, project):
    keep = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**keep, "PREFECT_API_URL": server.api_url, "HF_HUB_OFFLINE": "1", "PWD": str(project)}


@pytest.fixture(scope="module")
def run(python, project, environment):
    """Calls a module of the environment in the project."""

    def call(*words, code=0, **variables):
        done = subprocess.run(
            [python, "-P", "-m", *words],
            cwd=project,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


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


def test_mortal_train_scores_with_the_users_own_package(run, project):
    run("mortal", "train", "tiny.toml", "--run-id", "trained")
    trained = find_run(project / "runs", "trained")
    assert trained.manifest.status == "completed"
    assert len(ProblemFile(trained.store.path("data/train.parquet"))) == trained.info.num_problems
    assert [row["rewards/matches/mean"] for row in trained.metrics()]


def test_a_task_of_reasoning_gym_without_the_extra_is_refused_with_the_remedy(run, project):
    source = "data.source=reasoning_gym:spell_backward"
    said = run("mortal", "train", "tiny.toml", "--run-id", "spelled", "--set", source, code=1)
    assert "data.source = 'reasoning_gym:spell_backward'" in said
    assert "pip install 'mortal[reasoning-gym]'" in said
    assert not (project / "runs" / "spelled").exists()


def test_a_deployment_runs_in_the_users_folder(run, python, project, environment):
    run("prefect", "work-pool", "create", "local", "--type", "process")
    where = "import mortal_deployments as d; print(d.__path__[0])"
    folder = subprocess.check_output([python, "-P", "-c", where], cwd=project, text=True).strip()
    assert Path(folder).is_relative_to(python.parents[1])
    run(
        "prefect",
        "--no-prompt",
        "deploy",
        "--name",
        "local",
        "--prefect-file",
        f"{folder}/prefect.yaml",
    )
    prefect = Prefect(environment["PREFECT_API_URL"])
    deployment = prefect.http.get("/deployments/name/grpo-train/local").json()
    answer = prefect.http.post(
        f"/deployments/{deployment['id']}/create_flow_run",
        json={
            "state": {"type": "SCHEDULED"},
            "parameters": {
                "config": None,
                "config_file": "tiny.toml",
                "overrides": ["run_id=deployed"],
            },
        },
    )
    flow_run = answer.json()["id"]
    command = [python, "-P", "-m", "prefect", "worker", "start", "--pool", "local"]
    with (project / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=project, env=environment, stdout=log, stderr=log)
        states = prefect.wait_for(flow_run, "Completed", "Failed", "Crashed")
        worker.terminate()
        worker.wait(timeout=PATIENCE_S)
    assert states[-1] == "Completed", (project / "worker.log").read_text()
    trained = find_run(project / "runs", "trained")
    deployed = find_run(project / "runs", "deployed")
    assert deployed.manifest.final.weights_sha256 == trained.manifest.final.weights_sha256


def test_mortal_deploy_works_outside_a_checkout(run, tmp_path):
    try:
        check_namespaces(tmp_path / "namespaces")
    except OSError as error:
        pytest.skip(str(error))
    with ModalPlane(tmp_path / "plane", *hidden_sources()) as plane:
        said = run("mortal", "deploy", **{**plane.env, "PREFECT_API_URL": ""})
        assert "no Prefect deployments" in said
        assert [app["name"] for app in plane.state()["apps"]] == ["mortal"]
