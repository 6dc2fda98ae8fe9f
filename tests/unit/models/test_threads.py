"""How many threads the actor of a new run takes: one for a model too small to share."""

from pathlib import Path

import pytest

from mortal_steps.config import ModelConfig, NewModelConfig
from mortal_steps.orchestration.checking.resolve_defaults import _is_small, resolve_defaults
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.starting_model.new_model import build_model

SMALL = NewModelConfig()
LARGE = NewModelConfig(hidden_size=256, num_layers=4, head_dim=64, intermediate_size=512)


@pytest.mark.parametrize(("shape", "threads"), [(SMALL, 1), (LARGE, 4)])
def test_a_small_model_is_trained_with_one_thread(
    shape: NewModelConfig, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mortal_steps.orchestration.checking.resolve_defaults._cores", lambda: 8)
    build_model(tmp_path, shape, seed=0)
    for model in ({"new": shape.model_dump()}, {"name_or_path": str(tmp_path)}):
        config = RunConfig.model_validate({"model": model, "rollout": {"engine": "transformers"}})
        assert resolve_defaults(config).compute.local.actor.threads == threads


def test_a_model_of_the_hub_is_taken_for_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not _is_small(ModelConfig(name_or_path="somebody/tiny"))
