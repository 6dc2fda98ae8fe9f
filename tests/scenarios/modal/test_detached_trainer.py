"""`MortalTrainer(...).train(detach=True)`: a container drives the run, and the script may end."""

import asyncio
import sys
import time

import pytest

from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.files.volume_lease import find_lease
from mortal_steps.runs.run import find_run
from tests.support.deployments import PATIENCE_S

SCRIPT = """
import asyncio
import sys

from mortal import MortalTrainer, SingleNode

rows = [{"prompt": f"{a}{b}>", "answer": b + a} for a in "abc" for b in "abc"]


def lottery(bonus):
    def score(completions, answer, **kwargs):
        return [bonus + sum(map(ord, t + r)) % 11 / 10 for t, r in zip(completions, answer)]

    return score


trainer = MortalTrainer(
    reward_funcs=[lottery(0.5), lambda completions, **kwargs: [len(c) / 6 for c in completions]],
    train_dataset=rows,
    mode=SingleNode(),
    batch_size=2,
    num_generations=2,
    max_steps=int(sys.argv[3]),
    learning_rate=1e-3,
    max_completion_length=6,
    gradient_checkpointing=False,
    backend=sys.argv[1],
    run_id=sys.argv[2],
    config={
        "model.new": {"hidden_size": 32, "head_dim": 32, "num_layers": 1,
                      "intermediate_size": 32, "max_position_embeddings": 64},
        "compute.local.actor.threads": 1,
        "rollout.dtype": "float32",
    },
)


async def in_a_notebook():
    for call in sys.argv[4:]:
        try:
            print(call, "GIVES", eval(f"trainer.{call}"), flush=True)
        except Exception as error:
            print(call, "RAISES", type(error).__name__, error, flush=True)


asyncio.run(in_a_notebook())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a project")
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def script(plane, folder):
    """Starts it; what it has said."""

    def run(*arguments):
        return plane.run(
            *(sys.executable, "train.py", *arguments), cwd=folder, env={"PREFECT_API_URL": ""}
        )

    return run


def call_of(plane):
    return plane.events("call_spawned", function="orchestrate")[-1]["call"]


def test_a_detached_run_ends_with_the_bits_of_one_that_stays(plane, script, folder):
    said = script("modal", "away", "2", "train(detach=True)")
    call = call_of(plane)
    assert f"run away continues on Modal ({call})" in said
    plane.wait_for("input_finished", call=call, timeout_s=300)

    said = script("modal", "away", "2", "status()", "result()", "stop()", "save_model('out')")
    assert "status() GIVES RunStatus(run_id='away', status='completed', step=2" in said
    assert "result() GIVES TrainingResult(run_id=away, status=completed, step=2/2" in said
    assert "stop() RAISES StoreError" in said and "there is nothing to stop" in said
    assert (folder / "out/model.safetensors").exists()

    script("local", "here", "2", "train()")
    away, here = (find_run(folder / "runs", name) for name in ("away", "here"))
    assert away.manifest.final.weights_sha256 == here.manifest.final.weights_sha256


def test_a_detached_run_is_stopped_from_another_process(plane, script, folder):
    script("modal", "stopped", "5000", "train(detach=True)")
    deadline = time.monotonic() + PATIENCE_S
    while asyncio.run(find_lease(RunsVolume("mortal-runs"), "stopped")) is None:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    said = script("modal", "stopped", "5000", "result()", "stop()", "status()")
    assert "result() GIVES TrainingResult(run_id=stopped, status=running" in said
    assert "status() GIVES RunStatus(run_id='stopped', status='stopped'" in said
