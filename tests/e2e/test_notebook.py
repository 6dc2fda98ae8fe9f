"""The notebook up to where it kills a run, which `make scenarios` goes through as well."""

from mortal_steps.runs.run import find_run
from tests.support.notebook import executed


def test_the_notebook_trains_and_shows_its_rewards_and_times(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", server.api_url)
    shown = executed(tmp_path, kills=False)
    assert "image/png" in shown[3] and "train_step" in shown[4]
    run = find_run(tmp_path / "runs", "quickstart")
    assert run.is_complete() and run.manifest.attempts == 1
