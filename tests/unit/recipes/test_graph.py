"""The graph of a recipe: what refers to what, and what is refused."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.recipes.file import parse_recipe, read_recipe
from mortal_steps.recipes.places import Taken, fits
from mortal_steps.recipes.recipe import Recipe, only
from mortal_steps.recipes.references import references_in, replaced

SFT = {"algorithm": {"type": "sft"}, "model": {"new": {}}, "data": {"source": "rows.jsonl"}}
GRPO = {
    "model": {"name_or_path": "stage:sft"},
    "data": {"source": "train.jsonl"},
    "rewards": {"terms": [{"type": "exact"}]},
}
GATE = {"type": "promote", "run": "stage:grpo"}
STAGES = {"gate": GATE, "grpo": GRPO, "sft": SFT}


def recipe(**stages):
    return Recipe(parse_recipe({"name": "letters", "stages": {**STAGES, **stages}}))


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("rows", "train"):
        (tmp_path / f"{name}.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')


def test_stages_come_after_those_that_they_begin_with():
    made = recipe()
    assert list(made.stages) == ["sft", "grpo", "gate"]
    assert made.parents("grpo") == ["sft"] and made.after("gate") == {"sft", "grpo"}
    assert list(only(made, ["grpo"]).stages) == ["sft", "grpo"]
    found = made.look()
    assert {name: each.state for name, each in found.items()} == {
        "sft": "ready",
        "grpo": "waits",
        "gate": "waits",
    }
    assert found["sft"].job.id.startswith("letters-sft-") and found["grpo"].why == "after sft"


def test_a_reference_has_a_key_and_is_replaced():
    values = {"a": {"b": ["x", "stage:sft"]}, "c": "stage:best/out", "d": "stage: left"}
    found = list(references_in(values))
    assert [(each.key, each.stage, each.output) for each in found] == [
        ("a.b[1]", "sft", ""),
        ("c", "best", "out"),
    ]
    assert replaced(values, lambda each: f"<{each.stage}>") == {
        "a": {"b": ["x", "<sft>"]},
        "c": "<best>",
        "d": "stage: left",
    }


def test_of_a_model_that_a_function_makes_nobody_knows_the_shape(tmp_path):
    (tmp_path / "merge.py").write_text("def merge(out):\n    pass\n")
    merge = {"type": "function", "call": "merge.py:merge"}
    begun = {**SFT, "model": {"name_or_path": "stage:merge"}}
    made = recipe(merge=merge, sft=begun)
    found = made.look()
    for name in ("sft", "grpo"):
        [reference] = made.stages[name].references
        assert made.stand_ins(name, found).model(reference) is None
    [reference] = recipe().stages["grpo"].references
    assert recipe().stand_ins("grpo", recipe().look()).model(reference) == {"new": {}}


REFUSED = {
    "an unknown stage": (
        {"grpo": {**GRPO, "model": {"name_or_path": "stage:stf"}}},
        "stages.grpo.model.name_or_path = 'stage:stf': the recipe has no stage 'stf'; did you "
        "mean sft?",
    ),
    "an unknown output": (
        {"grpo": {**GRPO, "model": {"name_or_path": "stage:sft/beast"}}},
        "stage sft has no output 'beast'; it has sft/run",
    ),
    "a run where a model belongs": (
        {"grpo": {**GRPO, "model": {"name_or_path": "stage:sft/run"}}},
        "a model or a folder belongs here, and stage sft produces a run",
    ),
    "a model where rows belong": (
        {"grpo": {**GRPO, "data": {"source": "stage:sft"}}},
        "stages.grpo.data.source = 'stage:sft': a dataset or a folder belongs here, and stage sft "
        "produces a model",
    ),
    "a model where nothing of another stage can stand": (
        {"grpo": {**GRPO, "rewards": {"terms": [{"type": "exact", "column": "stage:sft"}]}}},
        "nothing of another stage can stand here",
    ),
    "a circle": (
        {"sft": {**SFT, "model": {"name_or_path": "stage:grpo"}}},
        "takes something from itself, by way of",
    ),
    "an unknown kind": (
        {"gate": {**GATE, "type": "promot"}},
        "stages.gate.type: 'promot' is not known; did you mean 'promote'?",
    ),
    "a run id": ({"sft": {**SFT, "run_id": "mine"}}, "stages.sft.run_id = 'mine': the recipe"),
    "an unknown key of a run": (
        {"sft": {**SFT, "training": {"max_step": 3}}},
        "training.max_step: unknown key; did you mean training.max_steps?",
    ),
    "a gate without a run": (
        {"gate": {"type": "promote", "run": "grpo"}},
        "stages.gate.run = 'grpo': name the stage that trains the model",
    ),
    "an unknown key of a gate": (
        {"gate": {**GATE, "min_gains": 1.0}},
        "stages.gate.min_gains: unknown key; did you mean stages.gate.min_gain?",
    ),
    "a gate of nothing": ({"gate": {"type": "promote"}}, "stages.gate.run: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_recipe_is_refused(case):
    stages, said = REFUSED[case]
    with pytest.raises(ConfigError) as refused:
        recipe(**stages)
    assert said in str(refused.value)


def test_files_of_stages_defaults_and_overrides(tmp_path):
    (tmp_path / "sft.toml").write_text("seed = 1\n[training]\nmax_steps = 3\nbatch_size = 2\n")
    (tmp_path / "letters.toml").write_text(
        "[defaults.training]\nlearning_rate = 0.5\nbatch_size = 9\n"
        '[stages.sft]\nconfig = "sft.toml"\nalgorithm.type = "sft"\nmodel.new = {}\n'
        'data.source = "rows.jsonl"\ntraining.max_steps = 4\n'
    )
    read = read_recipe(tmp_path / "letters.toml", ["stages.sft.training.max_steps=5"])
    assert read.name == "letters"
    training = Recipe(read).stages["sft"].values["training"]
    assert training == {"learning_rate": 0.5, "batch_size": 2, "max_steps": 5}


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "kto", "reward"])
def test_what_is_about_completions_in_the_defaults_is_for_other_stages(algorithm):
    defaults = {
        "rewards": {"functions": ["rewards.py:right"]},
        "training": {"max_completion_length": 16, "num_generations": 4, "batch_size": 4},
    }
    grpo = {"model": {"new": {}}, "data": {"source": "rows.jsonl"}}
    rows = {**grpo, "algorithm": {"type": algorithm}}
    made = parse_recipe({"name": "a", "defaults": defaults, "stages": {"a": grpo, "b": rows}})
    found = Recipe(made).stages
    assert found["a"].values["rewards"] == defaults["rewards"]
    assert found["a"].values["training"] == defaults["training"]
    assert "rewards" not in found["b"].values
    assert found["b"].values["training"] == {"batch_size": 4}


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        ("[stages.sft]\n[limit]\n", (), "limit: unknown key; did you mean limits?"),
        ("[stages.sft]\n[limits]\ngpu = 1\n", (), "limits.gpu: unknown key; did you mean gpus?"),
        ("[stages.sft]\n[limits]\ngpus = -1\n", (), "limits.gpus = -1: must be greater"),
        ("[stages.sft]\n", ("stages.stf.seed=1",), "no stage 'stf'; did you mean sft?"),
        ('name = "a b"\n[stages.sft]\n', (), "name = 'a b': must consist of letters"),
        ('[stages.sft]\nconfig = "no.toml"\n', (), "no such configuration file: no.toml"),
    ],
)
def test_what_is_no_file_of_a_recipe_is_refused(tmp_path, text, overrides, said):
    (tmp_path / "letters.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_recipe(tmp_path / "letters.toml", overrides)
    assert said in str(refused.value)


def test_a_file_beside_the_recipe_is_pointed_out(tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "grpo.toml").write_text("")
    (tmp_path / "recipes" / "letters.toml").write_text('[stages.grpo]\nconfig = "grpo.toml"\n')
    with pytest.raises(ConfigError, match=r"write '.*recipes/grpo.toml'"):
        read_recipe(tmp_path / "recipes" / "letters.toml")


def test_no_two_stages_are_on_one_gpu():
    def takes(*gpus, here=True):
        return Taken(here=here, gpus=frozenset(gpus))

    limits = parse_recipe({"name": "a", "stages": {"s": {}}, "limits": {"gpus": 2}}).limits
    assert fits(takes("0"), [takes("1")], limits)
    assert not fits(takes("0"), [takes("0", "1")], limits)
    assert not fits(takes("2"), [takes("0", "1")], limits)
    assert fits(takes("0", "1", "2"), [], limits)  # more than the limit: alone
    assert not fits(takes("3"), [takes("0", "1", "2")], limits)
    assert fits(takes(here=False), [takes("0", "1")], limits)
    assert fits(takes(), [takes("0", "1")], limits) and not fits(takes(), [takes()], limits)
