"""Whose modules a reward function gets."""

import os
import subprocess
import sys
from pathlib import Path


def test_modules_of_the_folder_come_before_installed_ones_but_for_those_we_need(
    tmp_path: Path,
) -> None:
    """`pytest` and `iniconfig` stand for what is installed beside MORTAL, `tomli_w` is needed."""
    (tmp_path / "pytest").mkdir()
    (tmp_path / "pytest/judge.py").write_text(
        "import calendar, tomli_w, iniconfig\n"
        "def f(completions, **kwargs):\n"
        "    return [calendar.MONDAY + 1, len(tomli_w.dumps({})) + 1, iniconfig.MINE]\n"
    )
    for name in ("calendar", "tomli_w", "iniconfig"):
        (tmp_path / f"{name}.py").write_text("MINE = 1")
    code = "from mortal_steps.rewards.loading import load_reward;"
    code += "print(load_reward('pytest.judge:f')(completions=[]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[1, 1, 1]", done.stderr


def test_the_folder_of_the_last_function_comes_first_and_all_before_pythonpath(
    tmp_path: Path,
) -> None:
    """Two functions in files of two folders import `helpers`, which is in three."""
    for folder, value in (("", 1), ("sub", 2), ("installed", 3)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "helpers.py").write_text(f"VALUE = {value}")
    function = "def f(completions, **kwargs):\n    import helpers\n    return [helpers.VALUE]\n"
    (tmp_path / "first.py").write_text(function)
    (tmp_path / "sub" / "second.py").write_text(function)
    code = "from mortal_steps.rewards.loading import load_reward;"
    code += "load_reward('first.py:f');"
    code += "print(load_reward('sub/second.py:f')(completions=[]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
    )
    assert done.stdout.strip() == "[2]", done.stderr
