"""Fixtures of what a user has who installs a wheel: no checkout, and folders of the project's
names."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.deployments import PATIENCE_S
from tests.support.paths import ROOT
from tests.support.project import write_project
from tests.support.server import server_of_its_own

FOLDERS = ("mortal", "mortal_steps", "flows", "tasks", "deployments")
"""Of the packages; the last three are installed under other names."""
HIDING = ("datasets.py", "random.py")
"""Modules of a project that neither MORTAL nor Prefect takes for others."""
NOT_BORROWED = ("mortal", "mortal_rl", "__editable__", "reasoning_gym", "wandb")
NOT_OURS = 'raise RuntimeError("this is the user\'s, and MORTAL has no business with it")\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    sources = tmp_path_factory.mktemp("wheel") / "sources"
    for name in (*FOLDERS, "requirements"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
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
    """The interpreter of an environment of its own, in which pip has installed the wheel; what the
    project depends on is borrowed from this one, its editable installation and its extras are
    not."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for place in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for entry in place.iterdir():
            borrowed = packages / entry.name
            known = entry.suffix == ".pth" or entry.name.startswith(NOT_BORROWED)
            if not known and not borrowed.exists():  # else an earlier place has it
                borrowed.symlink_to(entry)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    done = subprocess.run([*pip, *install], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return python


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
