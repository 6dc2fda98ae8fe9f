"""examples/quickstart.ipynb, in a kernel of Jupyter's."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.support.paths import ROOT

KILLS = "## A run that dies"
"""Under this heading it kills a run and continues it."""


def executed(folder: Path, *, kills: bool) -> list[str]:
    """What its code cells show, run with fewer steps in `folder`; those that kill are left out,
    unless they are asked for."""
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    (settings,) = [cell for cell in notebook.cells if "STEPS = 40" in cell.source]
    settings.source = settings.source.replace("STEPS = 40", "STEPS = 12")
    if not kills:
        (heading,) = [i for i, cell in enumerate(notebook.cells) if cell.source.startswith(KILLS)]
        notebook.cells = notebook.cells[:heading]
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    return [str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
