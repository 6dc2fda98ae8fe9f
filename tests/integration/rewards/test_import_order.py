"""Whose modules a reward function gets."""

import subprocess
import sys
from pathlib import Path


def test_modules_of_the_folder_come_before_installed_ones_but_for_those_we_need(
    tmp_path: Path,
) -> None:
    """`pytest` and `iniconfig` stand for what is installed with MORTAL, `tomli_w` is needed."""
    (tmp_path / "pytest").mkdir()
    (tmp_path / "pytest/__init__.py").touch()
    (tmp_path / "pytest/judge.py").write_text(
        "import calendar, tomli_w, iniconfig\n"
        "def f(completions, **kwargs):\n"
        "    return [calendar.MONDAY + 1, len(tomli_w.dumps({})) + 1, iniconfig.MINE]\n"
    )
    for name in ("calendar", "tomli_w", "iniconfig"):
        (tmp_path / f"{name}.py").write_text("MINE = 1")
    code = "from mortal_steps.rewards.users_code.loading import load_reward;"
    code += "print(load_reward('pytest.judge:f')(completions=[]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[1, 1, 1]", done.stderr
