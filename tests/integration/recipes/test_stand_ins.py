"""A stage is checked whole, with processes, while what it takes from other stages is to come."""

import pytest

from mortal_steps.errors import MortalError
from mortal_steps.recipes.checking import check_stages
from mortal_steps.recipes.file import parse_recipe
from mortal_steps.recipes.kinds.train import TrainStage
from mortal_steps.recipes.recipe import Recipe
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


@pytest.mark.parametrize(
    ("keep", "refused"), [("pairs", None), ("best", "chosen")], ids=["fits", "fits_not"]
)
def test_rows_to_come_are_checked_by_their_columns(keep, refused, tmp_path, monkeypatch):
    """What a stage will sample is known but for its texts: DPO needs pairs."""
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    sampling = {**TINY, "sample": {"completions": 4, "keep": keep}, "evaluation": {}}
    dpo = {
        "type": "train",
        "algorithm": {"type": "dpo"},
        "model": TINY["model"],
        "data": {"source": "stage:rows", "eval_samples": 2},
        "training": {"max_steps": 2, "batch_size": 4},
    }
    stages = {"rows": {**sampling, "type": "sample"}, "dpo": dpo}
    for table in ("name", "checkpoints"):
        stages["rows"].pop(table, None)
    recipe = Recipe(parse_recipe({"name": "letters", "stages": stages}))
    said: list[tuple[str, str]] = []

    def check():
        check_stages(recipe, recipe.look(), lambda name, line: said.append((name, line)))

    if refused is None:
        check()
    else:
        with pytest.raises(MortalError, match=refused) as error:
            check()
        assert str(error.value).startswith("stage dpo: ")
    assert ("dpo", "reading the dataset") in said
