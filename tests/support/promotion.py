"""Two finished runs of the tiny project, whose models answer otherwise."""

from tests.support.project import write_project
from tests.support.undisturbed import undisturbed

REWARDS = """
def lottery(completions, answer, **kwargs):
    return [sum(map(ord, text + right)) % 11 / 10 for text, right in zip(completions, answer)]
"""
QUICK = (
    "rewards.functions=rewards.py:lottery",
    "training.learning_rate=0.05",
    "rollout.num_shards=2",
)


def train_two(folder):
    """Return a project in the folder, with the runs `first` and `second`."""
    write_project(folder)
    (folder / "rewards.py").write_text(REWARDS)
    undisturbed(folder, [*QUICK, "training.max_steps=1"], "first")
    undisturbed(folder, [*QUICK, "training.max_steps=2"], "second")
    return folder
