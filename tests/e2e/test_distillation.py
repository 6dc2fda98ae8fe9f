"""`mortal train` with `algorithm.type = "distillation"`: killed, resumed, and looked at."""

import signal

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.run import find_run
from tests.support.command import end_driver, wait_for_step
from tests.support.project import write_project
from tests.support.undisturbed import assert_same, undisturbed

SETTINGS = """
name = "distil"
[model]
max_model_len = 32
[model.new]
hidden_size = 16
head_dim = 16
num_layers = 1
intermediate_size = 16
[data]
source = "train.jsonl"
eval_samples = 4
[rollout]
engine = "transformers"
num_rollout_workers = 1
max_tokens = 6
[algorithm]
type = "distillation"
teacher = "teacher"
beta = 0.3
[training]
batch_size = 8
max_steps = 8
learning_rate = 1e-2
max_completion_length = 6
[evaluation]
eval_steps = 4
functions = ["rewards.py:matches"]
[checkpoints]
save_steps = 4
"""


def test_a_killed_run_is_resumed_to_the_same_bits_and_shown_by_its_loss(mortal):
    write_project(mortal.folder)
    (mortal.folder / "tiny.toml").write_text(SETTINGS)
    (mortal.folder / "teacher").mkdir()
    build_model(mortal.folder / "teacher", NewModelConfig(num_layers=1), seed=3)
    process = mortal.start("train", "tiny.toml", "--run-id", "killed")
    wait_for_step(mortal, "killed", 3, process)
    end_driver(mortal, "killed", signal.SIGKILL)
    process.communicate()
    shown = mortal("resume", "killed")
    assert "loss" in shown and "matches" in shown and "(training, " in shown
    assert_same(mortal.folder, "killed", undisturbed(mortal.folder))
    run = find_run(mortal.folder / "runs", "killed")
    assert run.manifest.attempts == 2
    sampled = mortal("samples", "killed", "--step", "1")
    assert "unscored of step 1" in sampled and "reward" not in sampled
