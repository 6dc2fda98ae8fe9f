"""examples/quickstart.ipynb, in a kernel of Jupyter's."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.support.paths import ROOT


def executed(folder: Path) -> list[str]:
    """What its code cells show, run with fewer steps in `folder`."""
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    (settings,) = [cell for cell in notebook.cells if "STEPS = 40" in cell.source]
    settings.source = settings.source.replace("STEPS = 40", "STEPS = 12")
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    return [str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
