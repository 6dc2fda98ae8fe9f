"""Two runs of the tiny project, finished: the second one has learned for longer."""

import pytest

from mortal_steps.runs.run import find_run
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


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A project with the runs `first` and `second`."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    (folder / "rewards.py").write_text(REWARDS)
    undisturbed(folder, [*QUICK, "training.max_steps=1"], "first")
    undisturbed(folder, [*QUICK, "training.max_steps=2"], "second")
    return folder


@pytest.fixture
def runs(trained):
    return {name: find_run(trained / "runs", name) for name in ("first", "second")}
