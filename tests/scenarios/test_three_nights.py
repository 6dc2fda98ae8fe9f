"""A deployed cron and a process worker, one night after the other."""

from mortal_steps.runs.run import find_run
from tests.support.deployments import tiny_config
from tests.support.nights import NIGHTS, deployed, let_it_be_night
from tests.support.project import write_project


def test_three_nights_train_three_models(prefect, tmp_path):
    write_project(tmp_path)
    config = tiny_config(tmp_path, "", max_steps=2)
    del config["run_id"], config["evaluation"]
    nights = deployed(prefect, "three-nights", config)
    with prefect.worker():
        for night in nights:
            let_it_be_night(prefect, night["id"])
            ended = prefect.wait_for(night["id"], "Completed", "Failed", "Crashed")
            assert ended[-1] == "Completed"
    folders = (tmp_path / "runs").glob("tiny-*")
    runs = [find_run(tmp_path / "runs", folder.name) for folder in folders]
    assert len(runs) == NIGHTS
    assert all(run.is_complete() and len(run.metrics()) == 2 for run in runs)
    assert len({run.manifest.ui_url for run in runs}) == NIGHTS
