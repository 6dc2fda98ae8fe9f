"""`mortal gc` and recipes: what a kept model comes from stays; products that nothing needs go."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal.maintenance.gc import carry_out, plan
from mortal_steps.errors import CorruptFileError
from mortal_steps.store.files import locked_at_once
from tests.support.made_recipe import GRPO, SFT, made_recipe, made_run

RUNS = Path("runs")
BEST = RUNS / ".recipes/letters/best-bbbbbbbbbb"
WEEK = {"keep_days": 7.0}


@pytest.fixture
def old(tmp_path, monkeypatch):
    """The recipe, a month old."""
    monkeypatch.chdir(tmp_path)
    folder = made_recipe(tmp_path, days=30)
    age(RUNS)
    return folder


def age(folder, days=30):
    at = time.time() - days * 86400
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (at, at), follow_symlinks=False)


def forget(folder):
    """Let the recipe name other jobs, as after a night with other data."""
    record = folder.read()
    others = {
        name: replace(stage, job_id=f"letters-{name}-dddddddddd")
        for name, stage in record.stages.items()
    }
    folder.write(replace(record, stages=others))


def planned(**options):
    return [item.what for item in plan(RUNS, **options).items]


def test_what_a_recipe_names_stays(old):
    found = plan(RUNS, **WEEK)
    assert found.items == ()
    assert f"{SFT}: recipe letters has it as its stage sft" in found.kept


def test_a_recipe_that_is_begun_again_names_what_it_had_until_it_knows_better(old):
    """It may fail before it knows how its stages stand, or be begun for some of them only."""
    config = old.read().recipe()
    some = config.model_copy(update={"stages": {"sft": config.stages["sft"]}})
    old.begin(some, ("sft",), None)
    old.begin(config, (), None)
    assert planned(**WEEK) == []
    old.begin(some, (), None)  # the other stages are no part of it any more
    whole = "\n".join(planned(**WEEK))
    assert GRPO in whole
    assert "best-bbbbbbbbbb" in whole
    assert SFT not in whole


def test_what_no_recipe_names_any_more_goes_as_runs_go(old):
    forget(old)
    assert planned() == []  # runs without `retention.keep_days` stay, and so what they need
    whole = "\n".join(planned(**WEEK))
    assert all(name in whole for name in (SFT, GRPO, "best-bbbbbbbbbb"))
    assert carry_out(plan(RUNS, **WEEK), RUNS, print)
    assert not BEST.exists()
    assert [path.name for path in RUNS.iterdir() if not path.name.startswith(".")] == []
    assert list(RUNS.glob(".*.trash")) == []


def test_what_a_promoted_model_comes_from_stays_all_the_way(old):
    """By way of a product, too, whose run nothing else names."""
    forget(old)
    found = CliRunner().invoke(app, ["gc", "--older-than", "7"])
    assert "there is nothing to remove" in found.output
    shutil.rmtree("models")
    assert SFT in CliRunner().invoke(app, ["gc", "--older-than", "7"]).output


def test_a_run_that_scores_with_an_old_model_keeps_it(old):
    forget(old)
    terms = [{"type": "model", "name": "rm", "model": f"runs/{SFT}/final"}]
    made_run(RUNS, "new", model={"new": {}}, rewards={"terms": terms})
    assert SFT not in "\n".join(planned(**WEEK))


def test_only_the_product_of_a_run_that_stays_keeps_the_run_before_it(old):
    forget(old)
    data = {"source": f"{BEST}/out/rows.jsonl"}
    made_run(RUNS, "new", model={"new": {}}, data=data)
    whole = "\n".join(planned(**WEEK))
    assert SFT not in whole
    assert "best-bbbbbbbbbb" not in whole
    assert GRPO in whole


def test_a_young_product_stays(old):
    forget(old)
    os.utime(BEST)
    assert "best-bbbbbbbbbb" not in "\n".join(planned(**WEEK))


def test_a_product_that_is_being_made_is_not_removed(old, capsys):
    forget(old)
    going = plan(RUNS, **WEEK)
    with locked_at_once(BEST / "lock") as lock:
        assert lock is not None
        assert not carry_out(going, RUNS, print)
    assert BEST.exists()
    assert "a process works there" in capsys.readouterr().out


def test_a_damaged_recipe_removes_nothing(old):
    old.store.path("recipe.json").write_text("{}")
    with pytest.raises(CorruptFileError, match=r"recipe.json"):
        plan(RUNS, **WEEK)
    assert BEST.exists()


def test_a_stage_that_was_noted_and_never_began_leaves_nothing(old):
    never = RUNS / "letters-dpo-eeeeeeeeee"
    never.mkdir()
    shutil.copy(RUNS / GRPO / "inputs.json", never)
    assert planned() == []
    age(never)
    assert "letters-dpo-eeeeeeeeee" in "\n".join(planned())
    assert carry_out(plan(RUNS), RUNS, print)
    assert not never.exists()


def test_what_grading_made_goes_after_a_day(old):
    for name, days in (("old", 2), ("new", 0)):
        shards = RUNS / ".graded" / name / "shards"
        shards.mkdir(parents=True)
        (shards / "rewards-0.parquet").write_text("x")
        age(shards.parent, days)
    assert planned() == [".graded/old, which `mortal grade` made"]
    assert planned(**WEEK) == []
    assert carry_out(plan(RUNS), RUNS, print)
    assert [path.name for path in (RUNS / ".graded").iterdir()] == ["new"]
