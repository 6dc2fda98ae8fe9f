"""Models of the hub, from the cache that a download leaves: a run stays with its commit."""

from pathlib import Path

import huggingface_hub.constants
import pytest

from mortal_steps.config import (
    LoraConfig,
    ModelConfig,
    NewModelConfig,
    RewardsConfig,
    TrainingConfig,
)
from mortal_steps.errors import ConfigError, ModelError
from mortal_steps.models import hub
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults, resolved
from mortal_steps.orchestration.open_run import create_run, open_run
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.run import find_run
from tests.support.refused import refused

NAME = "somebody/tiny"
FIRST, SECOND = "1" * 40, "2" * 40
SHAPE = NewModelConfig(hidden_size=32, num_layers=1, intermediate_size=32)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the hub's cache with two commits of a model, the branch `main` at the first."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    model = folder / "models--somebody--tiny"
    for seed, commit in enumerate((FIRST, SECOND)):
        build_model(model / "snapshots" / commit, SHAPE, seed)
    (model / "refs").mkdir()
    move_branch(folder, FIRST)
    monkeypatch.chdir(tmp_path)
    return folder


def move_branch(cache, commit):
    (cache / "models--somebody--tiny" / "refs" / "main").write_text(commit)


def model_of(run):
    return hub.model_folder(run.config.model.name_or_path, run.config.model)


def test_a_run_stays_with_the_commit_that_it_began_with(cache):
    config = RunConfig(run_id="run", runs_dir="runs", model=ModelConfig(name_or_path=NAME))
    create_run(
        Path("runs/run"), resolved(config, cores=2, commit=hub.find_commit(config.model)), [], []
    )
    begun = find_run(Path("runs"), "run")
    assert begun.config.model.revision == FIRST
    move_branch(cache, SECOND)
    for revision in (None, "main", FIRST):
        again = config.model_copy(
            update={"model": ModelConfig(name_or_path=NAME, revision=revision)}
        )
        went_on = open_run(again)
        assert went_on.config.fingerprint() == begun.info.fingerprint
        assert weights_digest(Path(model_of(went_on))) == weights_digest(
            cache / "models--somebody--tiny/snapshots" / FIRST
        )


def test_a_run_notes_the_commits_of_its_reward_models(cache):
    config = RunConfig(
        model=ModelConfig(new=SHAPE),
        rollout={"engine": "transformers"},
        rewards={"functions": ["rewards.py:short", NAME]},
        evaluation={"functions": f"{NAME}@main"},
    )
    settled = resolve_defaults(config)
    assert settled.rewards.functions == ("rewards.py:short", f"{NAME}@{FIRST}")
    assert settled.evaluation.functions == (f"{NAME}@{FIRST}",)
    wrong = config.model_copy(update={"rewards": RewardsConfig(functions=(f"{NAME}@v2",))})
    with refused(ModelError, "rewards: model = ", "'v2'", "cache"):
        resolve_defaults(wrong)


def test_what_is_asked_for_is_a_commit_in_the_end(cache):
    assert hub.find_commit(ModelConfig(name_or_path=NAME)) == FIRST
    assert hub.find_commit(ModelConfig(name_or_path=NAME, revision="main")) == FIRST
    assert hub.find_commit(ModelConfig(name_or_path=NAME, revision=SECOND)) == SECOND
    assert hub.find_commit(ModelConfig(new=SHAPE)) is None
    with refused(ModelError, "'somebody/tiny'", "'v2'", "cache"):
        hub.find_commit(ModelConfig(name_or_path=NAME, revision="v2"))
    with pytest.raises(ModelError, match=f"'nobody/nothing': .*folder in {Path.cwd()}, "):
        hub.find_commit(ModelConfig(name_or_path="nobody/nothing"))
    with pytest.raises(ModelError, match=r"does not give it"):
        hub.find_commit(ModelConfig(name_or_path="no model's name"))
    assert hub.find_commit(ModelConfig(name_or_path="a/folder/of/mine")) is None
    with refused(ConfigError, "model.revision = 'v1'"):
        hub.find_commit(ModelConfig(name_or_path=str(cache), revision="v1"))


def test_a_commit_that_cannot_be_had_is_named(cache):
    with pytest.raises(ModelError, match=rf"cannot get .* of somebody/tiny .*'{'3' * 40}'"):
        hub.model_folder(NAME, ModelConfig(name_or_path=NAME, revision="3" * 40))
    for path in (cache / "models--somebody--tiny" / "snapshots" / SECOND).glob("*.safetensors"):
        path.unlink()
    with refused(ModelError, "somebody/tiny", "weights"):
        hub.model_folder(NAME, ModelConfig(name_or_path=NAME, revision=SECOND))


def test_an_adapter_names_its_base_by_commit(cache, tmp_path):
    model = ModelConfig(name_or_path=NAME, revision=SECOND)
    lora = TrainingConfig(use_lora=True, lora=LoraConfig(r=2), gradient_checkpointing=False)
    rewards = RewardsConfig(functions=["rewards.py:any"])
    config = RunConfig(model=model, training=lora, rewards=rewards)
    folder = hub.model_folder(NAME, model)
    assert Path(folder).name == SECOND
    stepper = GRPO().stepper(
        Plan(config).trainer, model_path=folder, num_steps=1, output_dir=tmp_path / "logs"
    )
    stepper.begin()
    stepper.save_final(tmp_path / "final")
    adapter = (tmp_path / "final" / "adapter_config.json").read_text()
    assert f'"base_model_name_or_path": "{NAME}"' in adapter
    assert f'"revision": "{SECOND}"' in adapter
    card = (tmp_path / "final" / "README.md").read_text()
    assert f"base_model: {NAME}" in card
    assert str(cache) not in adapter + card
