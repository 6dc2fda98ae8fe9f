"""Two tiny models of the same shape, and runs whose store holds versions published from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from tests.support.rollout.tiny_model import build_tiny_model


@pytest.fixture(scope="session")
def model_a(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model_a"), seed=1)


@pytest.fixture(scope="session")
def model_b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shape of `model_a` with other weights."""
    return build_tiny_model(tmp_path_factory.mktemp("model_b"), seed=2)


@pytest.fixture(scope="session")
def other_shape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("other_shape"), seed=3, hidden_size=32)


@pytest.fixture(scope="session")
def tokenizer(model_a: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(model_a)


@pytest.fixture
def engine(model_a: Path, tokenizer: PreTrainedTokenizerBase) -> TransformersEngine:
    return TransformersEngine(
        model_path=str(model_a),
        model=ModelConfig(),
        rollout=RolloutConfig(engine="transformers"),
        tokenizer=lambda: tokenizer,
    )
