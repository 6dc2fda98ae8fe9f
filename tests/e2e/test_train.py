"""`mortal train` from the command line to the last file."""

import json
import signal
import time

import httpx
import psutil
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mortal_steps.runs.run import find_run
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project
from tests.support.rewards.processes import assert_ends
from tests.support.undisturbed import assert_same, undisturbed

LONG = 40
"""Steps of a run that a test has time to interrupt."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("trained")
    write_project(folder)
    mortal = Mortal(folder, server.api_url)
    mortal.output = mortal("train", "tiny.toml", "--run-id", "one")
    return mortal


def test_a_run_leaves_what_it_promises(trained):
    shown = trained.show("one")
    assert shown["run_id"] == "one"
    assert shown["status"] == "completed"
    assert (shown["step"], shown["max_steps"]) == (5, 5)
    assert set(shown["eval"]) == {"matches", "reward"}
    assert len(shown["final_weights_sha256"]) == 64
    assert shown["timings"]["generate"]["calls"] == 5 * 4
    assert shown["timings"]["train_step"]["calls"] == 5
    assert {"calls", "total_s", "mean_s"} <= set(shown["timings"]["reward"])
    run_dir = trained.folder / "runs" / "one"
    metrics = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [1, 2, 3, 4, 5]
    assert [row["policy_version"] for row in metrics] == [0, 1, 2, 3, 4]
    assert all({"reward", "loss", "grad_norm", "learning_rate"} <= set(row) for row in metrics)
    assert (run_dir / "reward_curve.png").read_bytes().startswith(b"\x89PNG")
    assert shown["checkpoints"][-2:] == [4, 5]
    model = AutoModelForCausalLM.from_pretrained(shown["model_path"])
    tokenizer = AutoTokenizer.from_pretrained(shown["model_path"])
    assert model.generate(**tokenizer("abc=", return_tensors="pt"), max_new_tokens=2).shape[0] == 1
    assert find_run(trained.folder / "runs", "one").status() == "completed"

    best = json.loads(trained("show", "runs/one", "--json", "--samples", "1"))["samples"][0]
    assert (best["kind"], best["step"]) == ("best", 5) and best["prompt"].endswith("=")
    assert best["reward"] == best["rewards"]["matches"]

    listed = json.loads(trained("runs", "--json"))
    assert "one" in [run["run_id"] for run in listed]
    assert "run one is complete" in trained("resume", "one")


def test_the_server_knows_every_stage_of_every_step(trained):
    names = {run["name"] for run in trained.runs_of_flow("one")}
    shards = range(4)
    expected = {"start_workers/0", "evaluate/0", "evaluate/4", "evaluate/5", "save_final"}
    expected |= {"warm_start", "checkpoint/2", "checkpoint/4", "checkpoint/5"}
    for step in range(5):
        expected |= {f"get_batch/{step}", f"train_step/{step}"}
        expected |= {f"generate/{step}/{shard}" for shard in shards}
        expected |= {f"reward/{step}/{shard}" for shard in shards}
    expected |= {f"sync_weights/{version}/0" for version in range(6)}
    assert names == expected
    assert {run["state_type"] for run in trained.runs_of_flow("one")} == {"COMPLETED"}


def test_the_output_tells_where_everything_is(trained):
    for part in ("where the time went", "train_step", "model ", "Prefect UI", "step 5/5"):
        assert part in trained.output


def test_a_second_ctrl_c_ends_at_once_and_loses_nothing(trained):
    long = f"training.max_steps={LONG}"
    process = trained.start("train", "tiny.toml", "--run-id", "impatient", "--set", long)
    wait_for_step(trained, "impatient", 2, process)
    children = psutil.Process(process.pid).children(recursive=True)
    logs = {file.path: child for child in children for file in child.open_files()}
    logs[str(trained.folder / "runs/impatient/logs/actor-0.log")].suspend()
    process.send_signal(signal.SIGINT)  # in order, this would wait for the actor for ever
    while "once more stops at once" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert "mortal resume impatient" in output
    assert len(children) >= 4, "the reward functions have a process of their own"
    for child in children:
        assert_ends(child.pid)
    assert trained.show("impatient")["status"] == "stopped"
    trained("resume", "impatient")
    assert_same(trained.folder, "impatient", undisturbed(trained.folder, [long], "patient"))


def test_the_number_of_workers_does_not_change_a_bit(trained):
    whole = undisturbed(trained.folder)  # it has one of each, in this process
    assert_same(trained.folder, "one", whole)
    trained("train", "tiny.toml", "--run-id", "many", "--set", "rollout.num_rollout_workers=3")
    assert_same(trained.folder, "many", whole)


def test_a_living_run_is_nobody_elses_and_an_interruption_says_how_to_go_on(trained):
    endless = ("train", "tiny.toml", "--set", "training.max_steps=1000", "--run-id", "busy")
    process = trained.start(*endless)
    wait_for_step(trained, "busy", 1, process)
    flow_run_id = find_run(trained.folder / "runs", "busy").manifest.ui_url.rpartition("/")[2]
    with httpx.Client(base_url=trained.env["PREFECT_API_URL"], timeout=30) as client:
        given_up = {"state": {"type": "CRASHED"}, "force": True}
        client.post(f"/flow_runs/{flow_run_id}/set_state", json=given_up).raise_for_status()
        refused = trained(*endless, code=1)
        deadline = time.monotonic() + PATIENCE_S
        names: list[str] = []
        while names[-2:] != ["Crashed", "Running"]:
            assert time.monotonic() < deadline, f"a server gives a living run up: {names}"
            states = client.get("/flow_run_states/", params={"flow_run_id": flow_run_id}).json()
            states.sort(key=lambda state: state["timestamp"])
            names = [state["name"] for state in states]
            time.sleep(0.2)
        wanted = {"flow_runs": {"name": {"any_": ["grpo/busy"]}}}
        assert client.post("/flow_runs/count", json=wanted).json() == 1, "none for the second one"
    assert "run busy is in use by process" in refused and "Traceback" not in refused
    assert "go on with" not in refused, "what the other process does is not its summary"
    assert "busy: stopped, step" in trained("stop", "busy")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert "mortal resume busy" in output
    assert "Crash detected" not in output and "ERROR" not in output
    assert (trained.folder / "runs" / "busy" / "reward_curve.png").exists()
    assert "no process drives run busy" in trained("stop", "busy", code=1)
    stopped = trained.show("busy")
    assert stopped["status"] == "stopped"
    assert stopped["checkpoint_step"] >= stopped["step"] >= 1, "the state was saved"


def test_a_fork_ends_with_its_parents_bits(trained):
    fork = ("fork", "one", "--at-step", "4", "--run-id", "forked")
    refused = trained(*fork, "--set", "rewards.functions=['nowhere.py:judge']", code=1)
    assert "nowhere.py" in refused and not (trained.folder / "runs" / "forked").exists()
    output = trained(*fork)
    assert "run forked is a fork of one at step 4" in output and "step 5/5" in output
    one, forked = trained.show("one"), trained.show("forked")
    assert (forked["status"], forked["parent"]) == ("completed", {"run_id": "one", "step": 4})
    assert forked["final_weights_sha256"] == one["final_weights_sha256"]
    assert "the chain of 1 steps is whole" in trained("verify", "forked")
    names = {run["name"] for run in trained.runs_of_flow("forked")}
    assert "train_step/4" in names and "train_step/3" not in names
