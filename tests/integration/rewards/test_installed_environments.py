"""mortal_steps.rewards.sources: environments in installed packages are known by their versions."""

import errno
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError, RewardError, TransientError
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.source_history import find_history
from mortal_steps.rewards.sources import begin_sources, check_sources, note_sources
from mortal_steps.store import RunStore
from mortal_steps.system import libraries
from mortal_steps.system.libraries import packages_of
from tests.support.environments.interpreters import INSTALLED, make_interpreter
from tests.support.rewards.accepted import accepted_now

NAME, MODULE = "tiny-games", "tiny_games"
PROJECT = f"""
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{NAME}"
version = "0.6.9"
[tool.setuptools]
packages = ["{MODULE}"]
package-data = {{"*" = ["*.txt"]}}
"""
ALONE = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "my-env"
version = "0.1"
[tool.setuptools]
py-modules = ["my_env"]
"""
ASK_A_WORKER = """
import sys
from pathlib import Path
from mortal_steps.plan.loader import parse_config
from mortal_steps.rewards.sources import check_files
from mortal_steps.plan.parts import Plan
from mortal_steps.store import RunStore
config = parse_config({"environment": {"factory": sys.argv[1]}})
check_files(RunStore(Path(sys.argv[2])), Plan(config).code, Path.cwd())
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    names = ["_distutils_hack", *(each.name for each in INSTALLED.glob("setuptools*"))]
    return make_interpreter(tmp_path / "venv", names)


@pytest.fixture
def config(python: str) -> RunConfig:
    return parse_config({"environment": {"factory": f"{MODULE}.shop:Shop", "python": python}})


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs/r")


def pip(python: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", python, "--quiet", *arguments]
    subprocess.run([*command, "--disable-pip-version-check"], check=True)


def install(python: str, version: str) -> None:
    """Install it as an index has it: a wheel of that name and version."""
    info = f"{MODULE}-{version}.dist-info"
    with zipfile.ZipFile(f"{MODULE}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{MODULE}/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", f"Name: {NAME}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        wheel.writestr(f"{info}/RECORD", "")
    pip(python, "install", "--no-index", "--find-links", ".", f"{NAME}=={version}")


def test_another_version_stops_the_run_until_it_is_accepted(
    python: str, config: RunConfig, store: RunStore, tmp_path: Path
) -> None:
    install(python, "0.6.9")
    begin_sources(store, Plan(config).code, tmp_path, step=0)
    check_sources(store, Plan(config).code, tmp_path)
    install(python, "0.7.0")
    with pytest.raises(RewardError, match=rf"{NAME} was 0\.6\.9, now 0\.7\.0\. Restore"):
        check_sources(store, Plan(config).code, tmp_path)
    accepted = accepted_now(config, tmp_path)
    note_sources(store, Plan(accepted).code, tmp_path, step=5)
    assert [entry.sources.packages for entry in find_history(store)] == [
        {NAME: "0.6.9"},
        {NAME: "0.7.0"},
    ]
    pip(python, "uninstall", "--yes", NAME)
    with pytest.raises(RewardError, match=rf"{NAME} was 0\.7\.0, now not there"):
        check_sources(store, Plan(config).code, tmp_path)


@pytest.mark.parametrize(
    ("how", "edited"), [(["--editable"], "__init__.py"), ([], "__init__.py"), ([], "words.txt")]
)
def test_a_package_in_a_folder_is_known_by_its_files(
    how: list[str], edited: str, python: str, config: RunConfig, store: RunStore, tmp_path: Path
) -> None:
    source = tmp_path / "games" / MODULE
    source.mkdir(parents=True)
    (source.parent / "pyproject.toml").write_text(PROJECT)
    (source / "__init__.py").write_text("")
    (source / "words.txt").write_text("three")
    installing = ("install", "--no-index", "--no-build-isolation", *how, "./games")
    pip(python, *installing)
    begin_sources(store, Plan(config).code, tmp_path, step=0)
    (source / "played.sqlite").write_text("what the environment itself writes")
    (source / "gone.py").symlink_to("nowhere")
    check_sources(store, Plan(config).code, tmp_path)
    (source / "gone.py").unlink()
    (source / edited).write_text("x = 1")
    if not how:
        check_sources(store, Plan(config).code, tmp_path)
        pip(python, *installing, "--force-reinstall")
    told = rf"{NAME} was 0\.6\.9 \(files \w+\), now 0\.6\.9 \(files \w+\)"
    with pytest.raises(RewardError, match=told):
        check_sources(store, Plan(config).code, tmp_path)


def test_an_environment_of_an_id_that_lies_in_the_working_folder_is_known_by_its_files(
    python: str, store: RunStore, tmp_path: Path
) -> None:
    config = parse_config({"environment": {"type": "verifiers", "id": "my-env", "python": python}})
    (tmp_path / "pyproject.toml").write_text(ALONE)
    (tmp_path / "my_env.py").write_text("")
    pip(python, "install", "--no-index", "--no-build-isolation", "--editable", ".")
    begin_sources(store, Plan(config).code, tmp_path, step=0)
    check_sources(store, Plan(config).code, tmp_path)
    (tmp_path / "my_env.py").write_text("x = 1")
    with pytest.raises(RewardError, match=r"my-env was 0\.1 \(files \w+\), now 0\.1 \(files"):
        check_sources(store, Plan(config).code, tmp_path)


def test_a_worker_whose_interpreter_has_other_packages_than_the_driver_goes_on(
    store: RunStore, tmp_path: Path
) -> None:
    factory = "trl.games:Shop"
    config = parse_config({"environment": {"factory": factory}})
    begin_sources(store, Plan(config).code, tmp_path, step=0)
    assert (find_history(store)[0].sources.packages or {}).keys() == {"trl"}
    names = [each.name for each in INSTALLED.iterdir() if not each.name.startswith("trl")]
    python = make_interpreter(tmp_path / "reward", names)
    asked = [python, "-P", "-c", ASK_A_WORKER, factory, str(store.root)]
    root = str(Path(__file__).parents[3])
    subprocess.run(asked, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, check=True)


def test_a_module_of_several_packages_is_known_by_all_of_them_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (("1", "a"), ("2", "b"), ("3", "b")):
        info = tmp_path / folder / f"{name}.dist-info"
        (tmp_path / folder / MODULE).mkdir(parents=True)
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {name}1\n")
        (info / "INSTALLER").write_text("pip")
        (info / "top_level.txt").write_text(MODULE)
    for order in ("123", "321"):
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(tmp_path / each) for each in order))
        assert packages_of([MODULE], sys.executable, tmp_path) == {"a and b": "a1 and b1"}


def test_modules_that_come_with_python_are_in_no_package(tmp_path: Path) -> None:
    assert packages_of(["zipimport", "sys", "random"], sys.executable, tmp_path) == {}


def test_what_an_installed_package_prints_at_the_start_is_passed_over(
    python: str, tmp_path: Path
) -> None:
    install(python, "0.6.9")
    (there,) = tmp_path.glob("venv/lib/python*/site-packages")
    (there / "loud.pth").write_text("import sys; print('hello')")
    assert packages_of([MODULE], python, tmp_path) == {NAME: "0.6.9"}


def test_a_machine_too_slow_or_too_full_to_ask_may_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = script(tmp_path / "python", "exec sleep 9")
    monkeypatch.setattr(libraries, "ASK_S", 0.1)
    with pytest.raises(TransientError, match=r"python was asked .* timed out"):
        packages_of([MODULE], slow, tmp_path)
    for number in (errno.EAGAIN, errno.ENOMEM):

        def refuses(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(subprocess, "Popen", refuses)
        with pytest.raises(TransientError, match=os.strerror(number)):
            packages_of([MODULE], slow, tmp_path)


def script(path: Path, content: str) -> str:
    path.write_text(f"#!/bin/sh\n{content}\n")
    path.chmod(0o755)
    return str(path)


def test_a_run_that_began_without_noting_them_notes_them_when_it_goes_on(
    python: str, config: RunConfig, store: RunStore, tmp_path: Path
) -> None:
    install(python, "0.6.9")
    begin_sources(store, Plan(RunConfig()).code, tmp_path, step=0)
    for step in (3, 4):
        note_sources(store, Plan(config).code, tmp_path, step)
    assert [(each.step, each.sources.packages) for each in find_history(store)] == [
        (0, None),
        (3, {NAME: "0.6.9"}),
    ]


def test_what_is_no_interpreter_is_named(store: RunStore, tmp_path: Path) -> None:
    config = parse_config({"environment": {"type": "gem", "id": "x", "python": "/nowhere/python"}})
    with pytest.raises(ConfigError, match=r"/nowhere/python does not say what is installed"):
        begin_sources(store, Plan(config).code, tmp_path, step=0)
    other = script(tmp_path / "other", "echo hello")
    with pytest.raises(ConfigError, match=r"other does not say what is installed"):
        packages_of([MODULE], other, tmp_path)


@pytest.mark.parametrize(
    ("environment", "modules"),
    [
        ({"type": "textarena", "id": "FrozenLake-v0"}, {"textarena"}),
        ({"type": "gem", "id": "game:Sudoku-v0-easy"}, {"gem"}),
        ({"type": "skyrl", "id": "own_envs.maze:Maze"}, {"skyrl_gym", "own_envs.maze"}),
        ({"type": "skyrl", "id": "path/maze.py:Maze"}, {"skyrl_gym"}),
        ({"type": "verifiers", "id": "owner/my-game@0.2"}, {"verifiers", "my_game"}),
        ({"type": "openenv", "url": "http://127.0.0.1:8000"}, set()),
        ({"type": "agent", "agent": "agents.shop:plays"}, {"agents.shop"}),
    ],
)
def test_each_kind_names_the_modules_that_its_environments_are_in(
    environment: dict, modules: set
) -> None:
    assert set(parse_config({"environment": environment}).environment.modules) == modules
