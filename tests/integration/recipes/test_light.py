"""Commands that look at recipes bring nothing heavy along."""

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
