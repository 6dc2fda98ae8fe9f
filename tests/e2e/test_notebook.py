"""examples/quickstart.ipynb, in a kernel of Jupyter's."""

import nbformat
from nbclient import NotebookClient

from mortal_steps.runs.run import find_run
from tests.support.paths import ROOT


def test_the_notebook_kills_its_run_and_ends_with_the_same_weights(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", server.api_url)
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    (settings,) = [cell for cell in notebook.cells if "STEPS = 40" in cell.source]
    settings.source = settings.source.replace("STEPS = 40", "STEPS = 12")
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    shown = [str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert "image/png" in shown[3] and "train_step" in shown[4]
    assert "WorkerLostError" in shown[5] and "status='interrupted'" in shown[5]
    assert "True" in shown[7]
    for run_id, attempts in {"quickstart": 1, "quickstart-killed": 2}.items():
        run = find_run(tmp_path / "runs", run_id)
        assert run.is_complete() and run.manifest.attempts == attempts
