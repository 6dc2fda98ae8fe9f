"""The run that nothing happens to, without Prefect and in this process: what others must equal."""

import pytest

from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import find_run
from tests.support.bare_flow import bare_in, go_on, unchecked


def undisturbed(folder, config=(), run_id="undisturbed"):
    """Train in a project by a configuration, or by `tiny.toml` with these settings; the run."""
    with bare_in(folder):
        return go_on(_placed(folder, config, run_id))


def begun(folder, config, run_id):
    """Return a run that is there and has done nothing, so that no process checks what it needs.

    `mortal resume`, and a flow run of its configuration, go on with it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(preflight, "check", unchecked)
        return open_run(_placed(folder, config, run_id))


def _placed(folder, config, run_id):
    if isinstance(config, dict):
        config = RunConfig.model_validate(config)
    else:
        config = load_config(folder / "tiny.toml", config)
    return config.model_copy(update={"run_id": run_id, "runs_dir": str(folder / "runs")})


def assert_same(folder, run_id, whole):
    """The run of the project has the model and the metrics of the other one."""
    run = find_run(folder / "runs", run_id)
    assert run.manifest.status == "completed"
    assert run.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    logs = [one.store.path("metrics.jsonl").read_bytes() for one in (run, whole)]
    assert logs[0] == logs[1]
