"""A stage is checked whole, with processes, while its teacher and its reward models are to come."""

import pytest

from mortal_steps.recipes.kinds.train import TrainStage
from tests.support.project import write_project
from tests.support.recipes import TINY, Nothing

NEW = {"new": TINY["model"]["new"]}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        (
            "algorithm.teachers.big",
            {"algorithm": {"type": "opd", "teachers": {"big": "stage:big"}}, "rewards": {}},
        ),
        ("rewards.functions[1]", {"rewards": {"functions": ["rewards.py:matches", "stage:rm"]}}),
    ],
)
def test_all_is_checked_while_the_models_beside_are_to_come(key, changes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    values = {**TINY, **changes, "data": {"source": "train.jsonl"}, "evaluation": {}}
    if "algorithm" in changes:
        values["training"] = {**TINY["training"], "num_generations": 1}
    del values["name"]
    said = []
    TrainStage("own", values, "letters").check(Nothing(models={key: NEW}), said.append)
    assert any("calling the reward functions" in line for line in said)
