"""`mortal train` from the command line to the last file."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mortal_steps.errors import CorruptFileError
from mortal_steps.run import find_run
from tests.e2e.conftest import Mortal, write_project


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("trained")
    write_project(folder)
    mortal = Mortal(folder, server.api_url)
    mortal("train", "tiny.toml", "--run-id", "one")
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

    listed = json.loads(trained("runs", "--json"))
    assert [run["run_id"] for run in listed] == ["one"]
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


def test_the_output_tells_where_everything_is(mortal):
    output = mortal("train", "tiny.toml", "--run-id", "talk", "--set", "training.max_steps=2")
    for part in ("where the time went", "train_step", "model ", "Prefect UI", "step 2/2"):
        assert part in output


def wait_for_step(mortal, run_id, step, process):
    """Wait until the run has done `step` steps."""
    path = mortal.folder / "runs" / run_id
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stdout.read()
        try:
            if find_run(mortal.folder / "runs", run_id).manifest.step >= step:
                return
        except (CorruptFileError, OSError, ValueError):
            pass  # not there yet
        except Exception as error:
            if type(error).__name__ != "RunNotFoundError":
                raise
        time.sleep(0.02)
    pytest.fail(f"{path} did not reach step {step}")


def test_the_number_of_workers_does_not_change_a_bit(mortal):
    digests = set()
    for workers in (1, 2, 3):
        run_id = f"workers-{workers}"
        mortal(
            *("train", "tiny.toml", "--run-id", run_id),
            *("--set", f"rollout.num_rollout_workers={workers}"),
        )
        digests.add(mortal.show(run_id)["final_weights_sha256"])
    assert len(digests) == 1


def test_a_killed_run_resumes_to_the_same_bits(mortal):
    options = ("tiny.toml", "--set", "training.max_steps=12")
    mortal("train", *options, "--run-id", "whole")
    process = mortal.start("train", *options, "--run-id", "killed")
    wait_for_step(mortal, "killed", 5, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert mortal.show("killed")["status"] == "interrupted"
    mortal("resume", "killed")
    whole, killed = mortal.show("whole"), mortal.show("killed")
    assert killed["status"] == "completed"
    assert killed["final_weights_sha256"] == whole["final_weights_sha256"]
    logs = [mortal.folder / "runs" / name / "metrics.jsonl" for name in ("whole", "killed")]
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


def test_killed_workers_are_replaced_and_the_bits_stay(mortal):
    options = ("tiny.toml", "--set", "training.max_steps=12")
    mortal("train", *options, "--run-id", "unharmed")
    process = mortal.start("train", *options, "--run-id", "harmed")
    killed = {}
    for step, role in ((2, "rollout-0"), (4, "actor-0"), (6, "reward-0")):
        wait_for_step(mortal, "harmed", step, process)
        killed[role] = workers_of(process)[role]
        os.kill(killed[role], signal.SIGKILL)
    wait_for_step(mortal, "harmed", 9, process)
    replaced = workers_of(process)
    assert all(replaced[role] != killed[role] for role in killed)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    unharmed, harmed = mortal.show("unharmed"), mortal.show("harmed")
    assert harmed["final_weights_sha256"] == unharmed["final_weights_sha256"]


def test_interrupting_says_how_to_go_on(mortal):
    process = mortal.start("train", "tiny.toml", "--run-id", "int")
    wait_for_step(mortal, "int", 1, process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "mortal resume int" in output
    assert mortal.show("int")["status"] == "stopped"


def test_a_second_process_is_refused(mortal):
    process = mortal.start("train", "tiny.toml", "--run-id", "busy")
    wait_for_step(mortal, "busy", 1, process)
    assert "run busy is in use by process" in mortal(
        "train", "tiny.toml", "--run-id", "busy", code=1
    )
    process.kill()
    process.wait()
    process.stdout.close()
