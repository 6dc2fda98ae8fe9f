"""`mortal train` from the command line to the last file."""

import json
import os
import signal
from pathlib import Path

import httpx
import psutil
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mortal_steps.run import find_run
from tests.e2e.conftest import Mortal, wait_for_step, write_project
from tests.rewards.processes import assert_ends

LONGER = ("--set", "training.max_steps=12")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("trained")
    write_project(folder)
    mortal = Mortal(folder, server.api_url)
    mortal.output = mortal("train", "tiny.toml", "--run-id", "one")
    return mortal


@pytest.fixture(scope="module")
def whole(trained):
    """What `mortal show` says of a longer run that nothing happened to."""
    trained("train", "tiny.toml", *LONGER, "--run-id", "whole")
    return trained.show("whole")


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
    process = trained.start("train", "tiny.toml", "--run-id", "impatient")
    wait_for_step(trained, "impatient", 2, process)
    children = psutil.Process(process.pid).children(recursive=True)
    logs = {file.path: child for child in children for file in child.open_files()}
    logs[str(trained.folder / "runs/impatient/logs/actor-0.log")].suspend()
    process.send_signal(signal.SIGINT)  # in order, this would wait for the actor for ever
    while "once more stops at once" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "mortal resume impatient" in output
    assert len(children) >= 4, "the reward functions have a process of their own"
    for child in children:
        assert_ends(child.pid)
    assert trained.show("impatient")["status"] == "stopped"
    trained("resume", "impatient")
    digests = {trained.show(run)["final_weights_sha256"] for run in ("one", "impatient")}
    assert len(digests) == 1


def test_the_number_of_workers_does_not_change_a_bit(trained):
    digests = {trained.show("one")["final_weights_sha256"]}
    for workers in (2, 3):
        run_id = f"workers-{workers}"
        trained(
            *("train", "tiny.toml", "--run-id", run_id),
            *("--set", f"rollout.num_rollout_workers={workers}"),
        )
        digests.add(trained.show(run_id)["final_weights_sha256"])
    assert len(digests) == 1


def test_a_killed_run_resumes_to_the_same_bits(trained, whole):
    process = trained.start("train", "tiny.toml", *LONGER, "--run-id", "killed")
    wait_for_step(trained, "killed", 5, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert trained.show("killed")["status"] == "interrupted"
    trained("resume", "killed")
    killed = trained.show("killed")
    assert killed["status"] == "completed"
    assert killed["final_weights_sha256"] == whole["final_weights_sha256"]
    logs = [trained.folder / "runs" / name / "metrics.jsonl" for name in ("whole", "killed")]
    assert logs[0].read_text() == logs[1].read_text()


def workers_of(process):
    """Process ids of the worker processes below `process`, by role."""
    found = {}
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_text()
        if "mortal_steps.compute.container" not in command:
            continue
        opened = os.readlink(f"/proc/{child}/fd/1")  # its log: actor-0.log, rollout-1.log, ...
        found[Path(opened).stem] = int(child)
    return found


def test_killed_workers_are_replaced_and_the_bits_stay(trained, whole):
    process = trained.start("train", "tiny.toml", *LONGER, "--run-id", "harmed")
    killed = {}
    for step, role in ((2, "rollout-0"), (4, "actor-0"), (6, "reward-0")):
        wait_for_step(trained, "harmed", step, process)
        killed[role] = workers_of(process)[role]
        os.kill(killed[role], signal.SIGKILL)
    wait_for_step(trained, "harmed", 9, process)
    replaced = workers_of(process)
    assert all(replaced[role] != killed[role] for role in killed)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    harmed = trained.show("harmed")
    assert harmed["final_weights_sha256"] == whole["final_weights_sha256"]


def test_a_second_process_is_refused_and_an_interruption_says_how_to_go_on(trained):
    endless = ("train", "tiny.toml", "--set", "training.max_steps=1000", "--run-id", "busy")
    process = trained.start(*endless)
    wait_for_step(trained, "busy", 1, process)
    flow_run_id = find_run(trained.folder / "runs", "busy").manifest.ui_url.rpartition("/")[2]
    with httpx.Client(base_url=trained.env["PREFECT_API_URL"], timeout=30) as client:
        given_up = {"state": {"type": "CRASHED"}, "force": True}
        client.post(f"/flow_runs/{flow_run_id}/set_state", json=given_up).raise_for_status()
        refused = trained(*endless, code=1)
        states = client.get("/flow_run_states/", params={"flow_run_id": flow_run_id}).json()
    names = [state["name"] for state in sorted(states, key=lambda state: state["timestamp"])]
    assert names[-2:] == ["Crashed", "Running"], "a server that gives up a living run is told so"
    assert "run busy is in use by process" in refused
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "mortal resume busy" in output
    stopped = trained.show("busy")
    assert stopped["status"] == "stopped"
    assert stopped["checkpoint_step"] >= stopped["step"] >= 1, "the state was saved"


def test_generating_ahead_is_as_reproducible_as_waiting(trained, whole):
    ahead = ("train", "tiny.toml", *LONGER, "--set", "rollout.staleness=1", "--run-id")
    trained(*ahead, "ahead")
    process = trained.start(*ahead, "ahead-killed", "--set", "rollout.num_rollout_workers=2")
    wait_for_step(trained, "ahead-killed", 5, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    trained("resume", "ahead-killed")
    shown = [trained.show(name) for name in ("ahead", "ahead-killed")]
    assert shown[0]["final_weights_sha256"] == shown[1]["final_weights_sha256"]
    assert shown[0]["final_weights_sha256"] != whole["final_weights_sha256"]
    logs = [trained.folder / "runs" / run["run_id"] / "metrics.jsonl" for run in shown]
    assert logs[0].read_text() == logs[1].read_text()
    rows = [json.loads(line) for line in logs[0].read_text().splitlines()]
    assert [row["policy_version"] for row in rows] == [max(0, t - 1) for t in range(12)]
