"""`mortal.Recipe`, before anything runs."""

from pathlib import Path

import pytest

import mortal
from mortal_steps.errors import ConfigError

ROWS = [{"prompt": "a", "completion": "b"}]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_outputs_of_stages_are_references_wherever_they_stand():
    recipe = mortal.Recipe("a")
    first = recipe.function("first", "export.py:make", path=Path("rows.jsonl"))
    recipe.function("second", "export.py:merge", models=[first, {"x": first.output("folder")}])
    stages = recipe.config.stages
    assert stages["first"]["path"] == "rows.jsonl"
    assert stages["second"]["models"] == ["stage:first", {"x": "stage:first/folder"}]


def test_a_trainer_becomes_the_table_of_its_stage():
    recipe = mortal.Recipe("a")
    sft = recipe.train("sft", mortal.SFTTrainer(model="m", train_dataset="rows.jsonl"))
    rm = mortal.RewardTrainer(model=sft.model, train_dataset="pairs.jsonl", run_id="mine")
    recipe.train("rm", rm)
    grpo = mortal.MortalTrainer(model=sft.model, reward_funcs=["stage:rm"], train_dataset="p.jsonl")
    recipe.train("grpo", grpo)
    stages = recipe.config.stages
    assert stages["rm"]["model"]["name_or_path"] == "stage:sft" and "run_id" not in stages["rm"]
    (term,) = stages["grpo"]["rewards"]["terms"]
    assert {key: term[key] for key in ("type", "model", "name")} == {
        "type": "model",
        "model": "stage:rm",
        "name": "rm",
    }
    with pytest.raises(ConfigError, match="has a stage 'rm' already"):
        recipe.train("rm", rm)


def test_objects_lie_where_the_runs_are():
    """Elsewhere they would count as unused, and `mortal gc` would remove them."""
    trainer = mortal.SFTTrainer(model="m", train_dataset=ROWS, runs_dir="others")
    with pytest.raises(ConfigError, match=r"write Recipe\(\.\.\., runs_dir='others'\)"):
        mortal.Recipe("a").train("sft", trainer)
    mortal.Recipe("a", runs_dir="others").train("sft", trainer)
    named = mortal.SFTTrainer(model="m", train_dataset="rows.jsonl", runs_dir="others")
    mortal.Recipe("a").train("sft", named)  # without objects
