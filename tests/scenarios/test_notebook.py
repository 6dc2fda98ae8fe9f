"""All of examples/quickstart.ipynb."""

from mortal_steps.runs.run import find_run
from tests.support.notebook import executed


def test_the_notebook_kills_its_run_and_ends_with_the_same_weights(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", server.api_url)
    shown = executed(tmp_path)
    assert "image/png" in shown[3] and "train_step" in shown[4]
    assert "WorkerLostError" in shown[5] and "status='interrupted'" in shown[5]
    assert "True" in shown[7]
    for run_id, attempts in {"quickstart": 1, "quickstart-killed": 2}.items():
        run = find_run(tmp_path / "runs", run_id)
        assert run.is_complete() and run.manifest.attempts == attempts
