"""The package needs nothing beside it: it may be copied, and be called anything."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
AROUND = {"tests", "benchmarks", "flows", "tasks", "deployments"}


@pytest.mark.parametrize("path", sorted(HERE.rglob("*.py")), ids=lambda path: path.name)
def test_a_module_imports_nothing_of_the_repository_around_it(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1, "from above the package"
            names = {node.module or ""} if node.level == 0 else set()
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        else:
            continue
        tops = {name.partition(".")[0] for name in names}
        assert not {top for top in tops if top in AROUND or top.startswith("mortal")}


def test_a_copy_of_it_runs_by_another_name(tmp_path):
    shutil.copytree(HERE, tmp_path / "plane_of_mine", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys; from pathlib import Path; from plane_of_mine.plane import ModalPlane\n"
        f"with ModalPlane(Path({str(tmp_path / 'state')!r}), '--isolation', 'none') as plane:\n"
        "    print(sorted(plane.state()), 'tests' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "'apps'" in done.stdout
    assert done.stdout.split()[-1] == "False"
