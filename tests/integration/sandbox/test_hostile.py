"""mortal_steps.sandbox: what means harm harms and learns nothing, and the next program runs."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mortal_steps.sandbox.box import find_bubblewrap
from tests.support.sandbox.hostile import run_all

ROOT = Path(__file__).parents[3]
NOBODY = 65534


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int, str]]:
    """A file, a port and an abstract socket of the user's, and a variable in the environment."""
    (tmp_path / "token").write_text("SECRET")
    (tmp_path / "token").chmod(0o644)
    monkeypatch.setenv("HF_TOKEN", "SECRET")
    with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0mortal-test-{os.getpid()}")
        abstract.listen()
        yield str(tmp_path / "token"), port.getsockname()[1], f"mortal-test-{os.getpid()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is not root")
def test_hostile_programs_as_root(targets: tuple[str, int, str]) -> None:
    assert run_all("root", *targets) == []


def test_hostile_programs_as_an_ordinary_user(targets: tuple[str, int, str]) -> None:
    if os.geteuid() != 0:
        assert run_all("user", *targets) == []
        return
    bubblewrap = find_bubblewrap()
    assert bubblewrap is not None
    script = "tests.support.sandbox.hostile"
    said = subprocess.run(
        [_python_for_nobody(), "-m", script, "user", *map(str, targets)],
        cwd="/",
        env={"PYTHONPATH": f"{ROOT}:{Path(bubblewrap).parents[2]}", "HF_TOKEN": "SECRET"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
    )
    told = said.stderr.splitlines()  # of those that end themselves by a signal
    assert (said.returncode, said.stdout) == (0, "\n"), said.stderr
    assert set(told) <= {"a program was killed (exit code -9) and runs again"}


def _python_for_nobody() -> str:
    """An interpreter that anybody may execute, and that may read this project. Packages are this
    process's, so it has to be of the same version."""
    version = sys.version_info[:2]
    look = f"import sys, os; assert sys.version_info[:2] == {version}; os.listdir({str(ROOT)!r})"
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            tried = subprocess.run(
                [python, "-c", look], user=NOBODY, group=NOBODY, cwd="/", capture_output=True
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return python
    pytest.skip("no Python {}.{} that an ordinary user may execute".format(*version))
