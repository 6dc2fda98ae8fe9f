"""What a user installs, who has no checkout."""

import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.support.paths import ROOT

FOLDERS = ("mortal", "mortal_steps", "flows", "tasks", "deployments")
"""Of the packages; the last three are installed under other names."""


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the wheel holds."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    build = [sys.executable, "-c", "import setuptools.build_meta as b; b.build_wheel('.')"]
    done = subprocess.run(build, cwd=sources, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = sources.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


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
