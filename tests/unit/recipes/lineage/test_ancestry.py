"""Where a model comes from, by all the names that people have for it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mortal.maintenance.gc import plan
from mortal_steps.errors import RunNotFoundError
from mortal_steps.recipes.lineage.ancestry import ancestry
from mortal_steps.recipes.lineage.naming import folders_named
from tests.support.made_recipe import GRPO, SFT, made_run

BEST = "best-bbbbbbbbbb"
RUNS, MODELS = Path("runs"), Path("models")


def of(name):
    return ancestry(folders_named(name, RUNS, MODELS), RUNS)


def names(name):
    return [each.name for each in of(name)]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("letters", f"{GRPO}-00000000"),
        ("models/letters/production", f"{GRPO}-00000000"),
        ("letters/grpo", GRPO),
        (GRPO, GRPO),
        (f"runs/{GRPO}", GRPO),
        (f"runs/{GRPO}/final", GRPO),
        ("letters/best", BEST),
        (f"runs/.recipes/letters/{BEST}/out/rows.jsonl", BEST),
        ("letters/sft", SFT),
    ],
)
def test_a_model_is_found_by_each_of_its_names(letters, name, first):
    assert names(name)[0] == first


def test_the_whole_chain_is_named_each_ancestor_once(letters):
    assert names("letters") == [f"{GRPO}-00000000", GRPO, BEST, SFT]
    grpo = of("letters/grpo")[0]
    taken = {each.key: (Path(each.made_by).name, each.damage) for each in grpo.takes}
    assert taken == {"model.name_or_path": (SFT, None), "data.source": (BEST, None)}
    assert (grpo.recipe, grpo.stage) == ("letters", "grpo")


def test_the_chain_ends_at_data_with_their_digest(letters):
    *_, sft = of("letters")
    data = next(each for each in sft.takes if each.key == "data.source")
    assert (data.name, data.made_by) == ("demonstrations.jsonl", None)
    assert len(data.content["sha256"]) == 64
    assert "1 rows, fingerprint" in data.about
    assert [each.key for each in sft.takes] == ["data.source", "model.new"]


def test_without_anything_in_use_a_recipe_is_its_last_stages(letters):
    shutil.rmtree("models")
    assert names("letters")[0] == GRPO


def test_a_recipe_that_was_moved_has_its_ancestors(letters, tmp_path, monkeypatch):
    project = tmp_path / "elsewhere"
    project.mkdir()
    for name in ("runs", "models"):
        shutil.move(name, project / name)
    monkeypatch.chdir(project)
    assert names("letters/grpo") == [GRPO, BEST, SFT]
    assert all(taken.damage is None for each in of("letters") for taken in each.takes)


def test_runs_without_a_recipe_have_a_lineage(letters):
    parent = made_run(RUNS, "fork-parent", model={"name_or_path": f"runs/{SFT}/final"})
    terms = [{"type": "model", "name": "rm", "model": f"runs/{GRPO}/final"}]
    made_run(RUNS, "fork", parent=parent, model={"new": {}}, rewards={"terms": terms})
    found = of("fork")
    assert [each.name for each in found] == ["fork", GRPO, BEST, "fork-parent", SFT]
    keys = [each.key for each in found[0].takes if each.made_by]
    assert keys == ["rewards.terms[0].model", "fork"]
    assert found[0].takes[-1].name == "fork-parent, step 1"


def test_a_text_that_can_be_no_path_is_no_ancestor(letters):
    """A judge's instructions, in letters of three bytes each, are too long for a file's name."""
    terms = [
        {"type": "regex", "name": "tilde", "pattern": "~(\\d+)"},
        {"type": "regex", "name": "long", "pattern": "请仔细阅读答案" * 20},
        {"type": "model", "name": "rm", "model": f"runs/{GRPO}/final"},
    ]
    made_run(RUNS, "judged", model={"new": {}}, rewards={"terms": terms})
    assert [each.key for each in of("judged")[0].takes] == ["rewards.terms[2].model", "model.new"]
    assert plan(RUNS, keep_days=7).items == (), "`mortal gc` asks as well"


def test_an_ancestor_that_is_gone_is_named(letters):
    shutil.rmtree(RUNS / SFT)
    found = {each.name: each for each in of("letters")}
    assert found[SFT].damage == "is gone"
    taken = {each.key: each.damage for each in found[GRPO].takes}
    assert taken == {"model.name_or_path": "is gone", "data.source": None}


def test_a_product_that_is_gone_is_named_without_a_record_of_the_inputs(letters):
    shutil.rmtree(RUNS / ".recipes/letters" / BEST)
    (RUNS / GRPO / "inputs.json").unlink()
    found = {each.name: each.damage for each in of(GRPO)}
    assert found[BEST] == "is gone"


def test_a_damaged_ancestor_is_named_and_the_rest_stays(letters):
    (RUNS / SFT / "run.json").write_text("{}")
    (RUNS / GRPO / "inputs.json").write_text("{}")
    found = {each.name: each for each in of("letters")}
    assert "run.json is damaged" in found[SFT].damage
    assert "inputs.json is damaged" in found[GRPO].damage
    assert BEST in found  # which its configuration names


def test_another_model_in_the_place_of_an_ancestor_is_seen_at_a_glance(letters):
    run = made_run(RUNS, "other", model={"new": {}})
    shutil.rmtree(RUNS / SFT / "final")
    shutil.copytree(run.store.path("final"), RUNS / SFT / "final")
    grpo = of("letters/grpo")[0]
    assert "is another one now" in grpo.takes[0].damage


def test_a_run_of_the_same_id_is_not_the_one_that_was_promoted(letters):
    shutil.rmtree(RUNS / GRPO)
    made_run(RUNS, GRPO, model={"new": {}})
    assert of("letters")[0].takes[0].damage == "is another run now"


def test_what_nobody_made_is_an_error_that_names_what_there_is(letters, tmp_path):
    with pytest.raises(RunNotFoundError, match="recipes and models there: letters"):
        of("lettres")
    with pytest.raises(RunNotFoundError, match="no record says what made it"):
        of(str(tmp_path))
    with pytest.raises(RunNotFoundError, match=r"has no stage 'dpo' \(sft, best, grpo\)"):
        of("letters/dpo")
    record = letters.read()
    waits = replace(record.stages["grpo"], job_id=None, standing="waits", headline="after sft")
    letters.write(replace(record, stages={**record.stages, "grpo": waits}))
    with pytest.raises(RunNotFoundError, match="has not begun: after sft"):
        of("letters/grpo")
