"""`mortal train` with `algorithm.type = "sft"`: killed, resumed, and looked at."""

import json
import signal

from mortal_steps.runs.run import find_run
from tests.support.command import end_driver, wait_for_step
from tests.support.undisturbed import assert_same, undisturbed

SETTINGS = """
name = "sft"
[model.new]
hidden_size = 16
head_dim = 16
num_layers = 1
intermediate_size = 16
[data]
source = "rows.jsonl"
eval_samples = 4
[algorithm]
type = "sft"
[training]
batch_size = 4
num_epochs = 4
learning_rate = 1e-2
[evaluation]
eval_steps = 8
"""


def test_a_killed_run_is_resumed_to_the_same_bits_and_shown_by_its_loss(mortal):
    (mortal.folder / "tiny.toml").write_text(SETTINGS)
    rows = [{"text": f"{chr(97 + number % 26)} is {number}"} for number in range(36)]
    (mortal.folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    process = mortal.start("train", "tiny.toml", "--run-id", "killed")
    wait_for_step(mortal, "killed", 3, process)
    end_driver(mortal, "killed", signal.SIGKILL)
    process.communicate()
    shown = mortal("resume", "killed")
    assert "loss" in shown and "held-out     loss " in shown and "reward" not in shown
    assert_same(mortal.folder, "killed", undisturbed(mortal.folder))
    run = find_run(mortal.folder / "runs", "killed")
    assert run.manifest.attempts == 2
    assert not run.store.path("weights").exists()
    assert "loss " in mortal("runs")
    assert "samples nothing" in mortal("samples", "killed")
