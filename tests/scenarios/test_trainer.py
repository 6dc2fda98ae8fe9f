"""`MortalTrainer` in a script, as a user has it: killed, resumed, and asked for something else."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mortal_steps.runs.lease import read_lease
from mortal_steps.runs.run import find_run
from tests.support.command import wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.hub_stub import hub_stub

SCRIPT = """
import sys
import time

from datasets import Dataset

from mortal import MortalTrainer, SingleNode

LETTERS = "abc"
rows = [{"prompt": f"{a}{b}>", "answer": b + a} for a in LETTERS for b in LETTERS]


def lottery(bonus):
    def score(completions, answer, **kwargs):
        time.sleep(0.02)  # long enough to be killed in
        return [bonus + sum(map(ord, t + r)) % 11 / 10 for t, r in zip(completions, answer)]

    return score


bonus, run_id, resume = float(sys.argv[1]), sys.argv[2] or None, sys.argv[3] == "resume"
trainer = MortalTrainer(
    reward_funcs=[lottery(bonus), lambda completions, **kwargs: [len(c) / 6 for c in completions]],
    reward_weights=[1.0, 0.5],
    train_dataset=Dataset.from_list(rows),
    mode=SingleNode(),
    batch_size=4,
    num_generations=4,
    max_steps=8,
    learning_rate=1e-3,
    max_completion_length=6,
    gradient_checkpointing=False,
    run_id=run_id,
    config={
        "model.new": {"hidden_size": 32, "head_dim": 32, "num_layers": 1,
                      "intermediate_size": 32, "max_position_embeddings": 64},
        "checkpoints.save_steps": 3,
        "compute.local.actor.threads": 1,
    },
)
if len(sys.argv) > 4:
    print("PUSHED", trainer.push_to_hub(sys.argv[4], private=True, token="secret"))
else:
    print("RESULT", trainer.train(resume=resume or None))
"""


class Script:
    """A user's script, on the tests' Prefect server."""

    def __init__(self, mortal):
        self.folder = mortal.folder
        self._mortal = mortal
        (self.folder / "script.py").write_text(SCRIPT)

    def start(self, *arguments, **environment):
        return subprocess.Popen(
            [sys.executable, "script.py", *arguments],
            cwd=self.folder,
            env={**self._mortal.env, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ends(self, process, code):
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, output
        return output

    def run(self, run_id):
        return find_run(self.folder / "runs", run_id)

    def driver(self, run_id):
        return read_lease(self.run(run_id).store).pid


@pytest.fixture
def script(mortal):
    return Script(mortal)


def wait_until_stopped(script, run_id):
    deadline = time.monotonic() + PATIENCE_S
    while script.run(run_id).status() == "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return script.run(run_id)


def check_upload(script):
    """The finished model reaches a hub as it is."""
    with hub_stub() as hub:
        online = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
        process = script.start("0.5", "whole", "begin", "me/lottery", **online)
        assert f"PUSHED {hub.url}/me/lottery" in script.ends(process, 0)
    ((private, files),) = hub.repositories.values()
    final = script.run("whole").store.path("final")
    assert private
    assert hub.tokens == {"Bearer secret"}
    assert files["model.safetensors"] == (final / "model.safetensors").read_bytes()
    assert {"config.json", "tokenizer.json"} <= files.keys()


def test_a_script_is_killed_and_resumed_and_ends_with_the_same_bits(script, mortal):
    script.ends(script.start("0.5", "whole", "begin"), 0)
    check_upload(script)

    owner = script.start("0.5", "", "begin")
    # The newest run has a name of its own.
    deadline = time.monotonic() + PATIENCE_S
    while not (found := [p.parent.name for p in (script.folder / "runs").glob("grpo-*/run.json")]):
        assert owner.poll() is None, owner.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (run_id,) = found
    wait_for_step(mortal, run_id, 1, owner)
    owner.kill()  # what it started sees it end, and stops in order
    owner.communicate()
    stopped = wait_until_stopped(script, run_id)
    assert stopped.status() == "stopped", stopped.manifest.error
    assert "state saved" in stopped.manifest.error

    owner = script.start("0.5", "", "resume")
    wait_for_step(mortal, run_id, stopped.manifest.step + 1, owner)
    os.kill(script.driver(run_id), signal.SIGKILL)
    said = script.ends(owner, 1)
    assert "WorkerLostError" in said and "train(resume=True)" in said

    said = script.ends(script.start("0.75", "", "resume"), 1)
    assert "StoreError" in said and "rewards.terms[score].object was" in said

    said = script.ends(script.start("0.5", "", "resume"), 0)
    assert f"RESULT TrainingResult(run_id={run_id}, status=completed, step=8/8" in said
    whole, resumed = script.run("whole"), script.run(run_id)
    assert resumed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
