"""A user's project of next to no size: a dataset, a reward function, a configuration."""

from pathlib import Path

from tests.support.chaos.project import MODEL_AND_DATA, write_words

REWARDS = '''
def matches(completions, answer, **kwargs):
    """Share of the answer's letters in their place."""
    return [
        sum(a == b for a, b in zip(text, right)) / len(right)
        for text, right in zip(completions, answer)
    ]
'''

CONFIG = f"""
name = "tiny"
seed = 7
{MODEL_AND_DATA}
[rollout]
engine = "transformers"
num_rollout_workers = 1
num_shards = 4
max_tokens = 6

[rewards]
functions = ["rewards.py:matches"]

[training]
batch_size = 6
num_generations = 4
max_steps = 5
learning_rate = 1e-3
max_completion_length = 6
gradient_checkpointing = false

[evaluation]
eval_steps = 4

[checkpoints]
save_steps = 2

[compute.local.actor]
threads = 1
"""


def write_project(folder: Path) -> Path:
    """Return a user's project: a dataset, a reward function, a configuration. Returns the last."""
    write_words(folder / "train.jsonl")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "tiny.toml").write_text(CONFIG)
    return folder / "tiny.toml"
