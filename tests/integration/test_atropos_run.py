"""A run that trains on batches of an Atropos API server."""

import contextlib
import signal
import time

import httpx
import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking import preflight
from mortal_steps.plan.loader import load_config
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.runs.logs import TIMINGS
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.types import Problem
from tests.support.atropos.groups import make_group
from tests.support.atropos.peer import free_ports
from tests.support.atropos.stub import AtroposStub
from tests.support.chaos.processes import kill, process_ids
from tests.support.damage import flip_a_byte
from tests.support.docs_examples import settings, write_modules
from tests.support.forked_commands import ForkedCommand

STEPS = 5
CONFIG = """
seed = 7
[model.new]

[rollout]
source = "atropos"
source_options = {{ url = "{url}", seq_len = 16, poll_s = 0.02{more} }}
engine = "transformers"
num_rollout_workers = 1

[algorithm]
type = "atropos"

[training]
batch_size = 2
num_generations = 4
max_steps = {steps}
learning_rate = 1e-3
gradient_accumulation_steps = 2
gradient_checkpointing = false

[checkpoints]
save_steps = 2

[compute.local.actor]
threads = 1
"""


@pytest.fixture
def train(tmp_path):
    (script,) = write_modules("extending.md", "The loop without Prefect", tmp_path)

    def begin(stub, run_id, more=""):
        (tmp_path / f"{run_id}.toml").write_text(
            CONFIG.format(url=stub.url, steps=STEPS, more=more)
        )
        return ForkedCommand([script, f"{run_id}.toml", run_id], cwd=tmp_path)

    return begin


def groups():
    return [make_group(number) for number in range(2 * STEPS)]


def kill_at(process, file):
    """Kill the run as soon as it has committed a file."""
    while not file.exists():
        assert process.poll() is None, "the run has ended before"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_run_that_is_killed_loses_no_batch_and_trains_on_none_twice(train, tmp_path):
    runs = tmp_path / "runs"
    with AtroposStub(groups()) as stub:
        assert train(stub, "whole").wait() == 0
    with AtroposStub(groups()) as stub:
        for file in ("000001/batch.json", "000003/journal.json"):
            kill_at(train(stub, "killed"), runs / "killed" / "steps" / file)
        assert train(stub, "killed").wait() == 0
        assert len(stub.served) == STEPS
        assert stub.queue == []
    whole, killed = (find_run(runs, name) for name in ("whole", "killed"))
    assert killed.manifest.attempts == 3
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    assert [row["loss"] for row in killed.metrics()] == [row["loss"] for row in whole.metrics()]
    held = [row["memory"] for row in whole.logs.read(TIMINGS) if row["stage"] == "train_step"]
    assert len(held) == STEPS
    assert min(each["resident"] for each in held) > 1e8
    rewards = [row["reward"] for row in killed.metrics()]
    served = [[score for group in batch for score in group["scores"]] for batch in stub.served]
    assert rewards == pytest.approx([sum(scores) / len(scores) for scores in served], rel=1e-5)
    assert [file for file in check_run(runs, "killed").files if file.damage] == []
    assert {path.name.partition("-")[0] for path in killed.store.path("logs").glob("*-0*.log")} == {
        "actor"
    }


def test_a_damaged_batch_that_was_trained_on_ends_the_run_and_no_other_is_asked_for(
    train, tmp_path, capfd
):
    step = tmp_path / "runs/damaged/steps/000003"
    with AtroposStub([make_group(number) for number in range(4 * STEPS)]) as stub:
        kill_at(train(stub, "damaged"), step / "result.json")
        flip_a_byte(step / "batch.json")
        stub.asked = 0
        assert train(stub, "damaged").wait() == 1
        assert stub.asked == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "steps/000003/batch.json is damaged" in said
    assert "Step 3 was trained on it, and the server has no copy: put one back, or" in said


def kill_before_training(begin, steps):
    """Kill a run that has committed a step's batch and has not trained on it, whose folder is
    returned."""
    for number in range(1, STEPS):  # on a busy machine it may have trained before it is killed
        step = steps / f"{number:06d}"
        kill_at(begin(), step / "batch.json")
        if not (step / "result.json").exists():
            return step
    pytest.fail("each step was trained before the run was killed")


def test_a_committed_batch_that_is_damaged_is_named_and_not_trained_on(train, tmp_path):
    with AtroposStub([make_group(number) for number in range(4 * STEPS)]) as stub:
        steps = tmp_path / "runs/damaged/steps"
        step = kill_before_training(lambda: train(stub, "damaged"), steps)
        flip_a_byte(step / "batch.json")
        assert train(stub, "damaged").wait() == 0
    run = find_run(tmp_path / "runs", "damaged")
    told = f"steps/{step.name}/batch.json is damaged"
    assert told in run.store.path("logs/flow.log").read_text()
    assert run.manifest.status == "completed"
    assert [file for file in check_run(tmp_path / "runs", "damaged").files if file.damage] == []
    for number, row in enumerate(run.metrics()):
        batch = run.store.find_record(f"steps/{number:06d}/batch.json", list[Problem])[1]
        scores = [score for group in batch for score in group.columns["scores"]]
        assert row["reward"] == pytest.approx(sum(scores) / len(scores), rel=1e-5)


def served_version(port, timeout_s=120):
    """Wait for the endpoint, and return the version that it samples with."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            found = httpx.get(f"http://127.0.0.1:{port}/bridge/info").json()["weight_version"]
            if found is not None:
                return found
        time.sleep(0.02)
    pytest.fail("nothing is served")


def test_a_rollout_worker_that_is_lost_serves_the_same_version_again(train, tmp_path):
    (port,) = free_ports(1)
    with AtroposStub(groups()[:4]) as stub:
        process = train(stub, "served", f", port = {port}")
        while served_version(port) < 2:  # two batches are trained on
            assert process.poll() is None
        (worker,) = process_ids(process.pid, "rollout-0")
        assert kill(worker)
        assert served_version(port) == 2
        asked = {"prompt": "ab", "max_tokens": 3, "n": 2}
        found = httpx.post(f"http://127.0.0.1:{port}/generate", json=asked, timeout=60).json()
        assert found["weight_version"] == 2
        with stub.lock:
            stub.queue += groups()[4:]
        assert process.wait() == 0
    assert len(find_run(tmp_path / "runs", "served").metrics()) == STEPS


def test_the_example_of_the_page_is_a_configuration(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(settings("atropos.md", "A configuration"))
    config = load_config(path)
    assert config.training.rows == 64
    assert algorithm_of(config.algorithm).clip_eps == 0.2


def test_settings_of_the_source_are_checked_when_the_configuration_is_read(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(CONFIG.format(url="localhost:8000", steps=STEPS, more=""))
    with pytest.raises(ConfigError, match=r"rollout\.source_options\.url = 'localhost:8000'"):
        load_config(path)
    path.write_text(CONFIG.format(url="http://localhost:8000", steps=-1, more=""))
    with pytest.raises(ConfigError, match=r"max_steps = -1, .*set training\.max_steps"):
        preflight.check(load_config(path))


def test_sequences_that_the_model_cannot_take_are_refused_before_anything_starts(tmp_path):
    path = tmp_path / "run.toml"
    text = CONFIG.format(url="http://localhost:8000", steps=STEPS, more="")
    path.write_text(text.replace("seq_len = 16", "seq_len = 4096"))
    config = load_config(path, [f"runs_dir={tmp_path}", "model.max_model_len=512"])
    with pytest.raises(ConfigError, match=r"seq_len = 4096, and the context is 512 tokens"):
        preflight.check(config)
