"""A deployment of a user who installed a wheel, in a folder that has names of the project's."""

import subprocess
from pathlib import Path

import pytest

from mortal_steps.runs.run import find_run
from tests.modal_plane.isolation import check_namespaces
from tests.modal_plane.plane import ModalPlane
from tests.support.deployments import PATIENCE_S, Prefect
from tests.support.modal.sources import hidden_sources
from tests.support.wheel import environment, names, project, python, run, server, wheel

__all__ = ["environment", "names", "project", "python", "run", "server", "wheel"]


def test_a_deployment_runs_in_the_users_folder(run, python, project, environment):
    run("prefect", "work-pool", "create", "local", "--type", "process")
    where = "import mortal_deployments as d; print(d.__path__[0])"
    folder = subprocess.check_output([python, "-P", "-c", where], cwd=project, text=True).strip()
    assert Path(folder).is_relative_to(python.parents[1])
    run(
        "prefect",
        "--no-prompt",
        "deploy",
        "--name",
        "local",
        "--prefect-file",
        f"{folder}/prefect.yaml",
    )
    prefect = Prefect(environment["PREFECT_API_URL"])
    deployment = prefect.http.get("/deployments/name/grpo-train/local").json()
    answer = prefect.http.post(
        f"/deployments/{deployment['id']}/create_flow_run",
        json={
            "state": {"type": "SCHEDULED"},
            "parameters": {
                "config": None,
                "config_file": "tiny.toml",
                "overrides": ["run_id=deployed"],
            },
        },
    )
    flow_run = answer.json()["id"]
    command = [python, "-P", "-m", "prefect", "worker", "start", "--pool", "local"]
    with (project / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=project, env=environment, stdout=log, stderr=log)
        states = prefect.wait_for(flow_run, "Completed", "Failed", "Crashed")
        worker.terminate()
        worker.wait(timeout=PATIENCE_S)
    assert states[-1] == "Completed", (project / "worker.log").read_text()
    run("mortal", "train", "tiny.toml", "--run-id", "trained")
    trained = find_run(project / "runs", "trained")
    deployed = find_run(project / "runs", "deployed")
    assert deployed.manifest.final.weights_sha256 == trained.manifest.final.weights_sha256


def test_mortal_deploy_works_outside_a_checkout(run, tmp_path):
    try:
        check_namespaces(tmp_path / "namespaces")
    except OSError as error:
        pytest.skip(str(error))
    with ModalPlane(tmp_path / "plane", *hidden_sources()) as plane:
        said = run("mortal", "deploy", **{**plane.env, "PREFECT_API_URL": ""})
        assert "no Prefect deployments" in said
        assert [app["name"] for app in plane.state()["apps"]] == ["mortal"]
