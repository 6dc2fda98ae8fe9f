"""Commands that look at recipes, as processes."""

import subprocess
import sys


def test_looking_needs_neither_torch_nor_prefect(letters):
    probe = (
        "import sys; from mortal.cli import app\n"
        "for command in ('show letters', 'status', 'runs', 'lineage letters'):\n"
        "    app(command.split(), standalone_mode=False)\n"
        "heavy = ('datasets', 'pandas', 'prefect', 'torch', 'transformers', 'matplotlib')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert finished.stdout.splitlines()[-1] == "[]"


def test_the_logs_of_a_recipe_are_those_of_its_stages(letters):
    command = [sys.executable, "-m", "mortal", "logs", "letters", "-n", "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "no stage of recipe letters has printed anything\n"
    logs = letters.store.path("logs")
    logs.mkdir()
    (logs / "sft.log").write_text("first\nlast of sft\n")
    (logs / "best.log").write_text("last of best\n")
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "last of sft" in found.stdout
    assert "last of best" in found.stdout
    assert "first" not in found.stdout
