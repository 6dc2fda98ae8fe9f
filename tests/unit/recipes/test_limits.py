"""What a recipe may cost, what its stages take, and what its gates are refused for."""

import json

import pytest

from mortal_steps.config import ComputeConfig
from mortal_steps.errors import ConfigError
from mortal_steps.recipes.costs import within_budget
from mortal_steps.recipes.file import override_recipe, parse_recipe
from mortal_steps.recipes.lineage.origin import Origin
from mortal_steps.recipes.places import Taken, fits
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.stages import Job
from mortal_steps.runs.recipe_of import INPUTS
from mortal_steps.store import RunStore
from tests.support.made_up_gpus import let_there_be, several
from tests.support.recipes import Nothing


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b", "answer": "b"}\n')


def cost(runs_dir, run_id, recipe, dollars):
    store = RunStore(runs_dir / run_id)
    store.root.mkdir(parents=True)
    origin = Origin(recipe=recipe, stage="s", kind="train", identity="0")
    store.write_record(INPUTS, origin, Origin)
    row = {"step": 0, "stage": "train_step", "kind": "useful", "dollars": dollars}
    (store.root / "costs.jsonl").write_text(json.dumps(row) + "\n")


def test_a_stage_may_cost_what_others_have_left(tmp_path):
    job = Job(recipe="a", stage="grpo", identity="1" * 64, inputs=(), runs_dir=tmp_path)
    cost(tmp_path, "a-sft-000000000b", "a", 10.0)
    cost(tmp_path, "a-sft-000000000c", "a", 5.0)  # with other settings
    cost(tmp_path, "a-b-sft-00000000", "a-b", 100.0)  # of another recipe
    cost(tmp_path, job.id, "a", 15.0)  # its own: a run counts that itself
    compute = ComputeConfig()
    assert within_budget(compute, None, job) is compute
    assert within_budget(compute, 40.0, job).modal.max_cost == 25.0
    with pytest.raises(ConfigError, match=r"limits\.max_cost = 15: the stages have cost 15\.00"):
        within_budget(compute, 15.0, job)


def test_with_a_budget_stages_elsewhere_take_turns():
    away = Taken(here=False)
    limits = parse_recipe({"name": "a", "stages": {"s": {}}}).limits
    assert fits(away, [away], limits)
    assert not fits(away, [away], limits.model_copy(update={"max_cost": 1.0}))


def using(**given):
    """A function as a stage."""
    stage = {"type": "function", "call": "own.py:use", **given}
    return Recipe(parse_recipe({"name": "a", "stages": {"use": stage}})).stages["use"]


def test_a_function_holds_the_gpus_that_it_names(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("def use(out): ...\n")
    let_there_be(monkeypatch, several(2))
    job = Job(recipe="a", stage="use", identity="1" * 64, inputs=(), runs_dir=tmp_path)
    limits = parse_recipe({"name": "a", "stages": {"s": {}}}).limits
    given = ({}, {"devices": "0"}, {"devices": "0,1"})
    none, first, both = (Taken.by(using(**each), job) for each in given)
    assert (none.gpus, first.gpus, both.gpus) == (frozenset(), {"0000-0"}, {"0000-0", "0000-1"})
    assert not fits(first, [both], limits) and not fits(both, [first], limits)
    assert fits(none, [both], limits)
    assert using(devices="0").identity(()) == using().identity(())
    with pytest.raises(ConfigError, match=r"stages\.use\.devices names '2', and with CUDA_VISIBLE"):
        using(devices="2").check(Nothing(), lambda line: None)


def gated(gate=(), **grpo):
    stage = {
        "model": {"new": {}},
        "data": {"source": "rows.jsonl", "eval_samples": 1},
        "rewards": {"terms": [{"type": "exact"}]},
        **grpo,
    }
    gate = {"type": "promote", "run": "stage:grpo", **dict(gate)}
    return Recipe(parse_recipe({"name": "a", "stages": {"grpo": stage, "gate": gate}}))


def check(recipe):
    found = recipe.look()
    recipe.stages["gate"].check(recipe.stand_ins("gate", found), lambda line: None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gate": {"overrides": ["training.max_steps=1"]}}, "only evaluation, rollout, rewards"),
        ({"data": {"source": "rows.jsonl"}}, "stages.gate.run = 'stage:grpo': that stage has no"),
        ({"compute": {"backend": "modal"}}, "stages.gate: compute.backend = 'modal'"),
    ],
)
def test_a_gate_that_could_not_judge_is_refused_before_anything_is_trained(given, said):
    with pytest.raises(ConfigError) as refused:
        check(gated(**given))
    assert said in str(refused.value)


def test_a_gate_that_can_judge_is_not_refused():
    check(gated())
    check(gated({"overrides": ["compute.backend=local"]}, compute={"backend": "modal"}))


def test_a_recipe_that_is_given_whole_takes_overrides():
    config = gated().config
    assert override_recipe(config, []) is config
    changed = override_recipe(config, ["stages.gate.min_gain=0.5", "limits.cpu_stages=2"])
    assert (changed.stages["gate"]["min_gain"], changed.limits.cpu_stages) == (0.5, 2)
    with pytest.raises(ConfigError, match="no stage 'gat'; did you mean gate"):
        override_recipe(config, ["stages.gat.min_gain=0.5"])


def test_where_a_run_ends_decides_what_it_leaves():
    def identity(**training):
        evaluation = {"eval_steps": 1}
        return gated(training=training, evaluation=evaluation).stages["grpo"].identity(())

    assert identity() == identity(until={})
    assert identity(until={"goal": 0.5}) != identity(until={"goal": 0.9}) != identity()
