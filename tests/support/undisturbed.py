"""The run that nothing happens to, without Prefect and in this process: what others must equal."""

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config
from mortal_steps.runs.run import find_run
from tests.support.bare_flow import go_on, stripped


def undisturbed(folder, config=(), run_id="undisturbed"):
    """Train in a project by a configuration, or by `tiny.toml` with these settings; the run."""
    if isinstance(config, dict):
        config = RunConfig.model_validate(config)
    else:
        config = load_config(folder / "tiny.toml", config)
    place = {"run_id": run_id, "runs_dir": str(folder / "runs")}
    with stripped() as patch:
        patch.chdir(folder)
        return go_on(config.model_copy(update=place), patch)


def assert_same(folder, run_id, whole):
    """The run of the project has the model and the metrics of the other one."""
    run = find_run(folder / "runs", run_id)
    assert run.manifest.status == "completed"
    assert run.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    logs = [one.store.path("metrics.jsonl").read_bytes() for one in (run, whole)]
    assert logs[0] == logs[1]
