"""`mortal train` from the command line to the last file."""

import json
import signal

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mortal_steps.run import find_run
from tests.e2e.conftest import Mortal, wait_for_step, write_project


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


def test_a_second_process_is_refused_and_an_interruption_says_how_to_go_on(trained):
    endless = ("train", "tiny.toml", "--set", "training.max_steps=1000", "--run-id", "busy")
    process = trained.start(*endless)
    wait_for_step(trained, "busy", 1, process)
    refused = trained(*endless, code=1)
    assert "run busy is in use by process" in refused
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "mortal resume busy" in output
    stopped = trained.show("busy")
    assert stopped["status"] == "stopped"
    assert stopped["checkpoint_step"] >= stopped["step"] >= 1, "the state was saved"
