"""A model that an actor could not begin with is named before a worker starts."""

import json

import huggingface_hub.constants
import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import ModelError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.checks import check_options
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.types import Problem
from tests.support.policy.rollouts import make_config
from tests.support.refused import refused

COMMIT = "1" * 40


@pytest.fixture
def folder(tmp_path):
    build_model(tmp_path / "model", NewModelConfig(hidden_size=32, num_layers=1), seed=0)
    return tmp_path / "model"


def check(model, **changes):
    plan = Plan(make_config(model={"name_or_path": str(model)}, **changes)).actor
    return check_options(plan, train=[Problem(id="a", prompt="ab")], held_out=[], sampled=2)


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_tokenizer_that_ends_no_text_is_named(folder):
    assert check(folder)[2].longest == 2
    edit(folder / "tokenizer_config.json", eos_token=None)
    with refused(ModelError, str(folder), "has no end-of-sequence token; set `eos_token`"):
        check(folder)


@pytest.mark.parametrize("changes", [{}, {"algorithm": {"type": "distillation"}}])
def test_a_damaged_tokenizer_is_named(folder, tmp_path, changes):
    if changes:
        build_model(tmp_path / "teacher", NewModelConfig(hidden_size=32, num_layers=1), seed=1)
        changes["algorithm"]["teacher"] = str(tmp_path / "teacher")
        changes["num_generations"] = 1
    (folder / "tokenizer.json").write_text("{}")
    with refused(ModelError, str(folder), "has no usable tokenizer: KeyError"):
        check(folder, **changes)


@pytest.mark.parametrize("changes", [{}, {"use_lora": True}, {"trl": {"router_aux_loss_coef": 1}}])
def test_code_of_a_model_on_the_hub_is_named_with_the_key_that_allows_it(
    tmp_path, monkeypatch, changes
):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--somebody--tiny"
    build_model(model / "snapshots" / COMMIT, NewModelConfig(), seed=0)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    kinds = {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.MineForCausalLM"}
    edit(model / "snapshots" / COMMIT / "config.json", model_type="mine", auto_map=kinds)
    with refused(ModelError, "code of its own", "set model.trust_remote_code = true"):
        check("somebody/tiny", **changes)
