"""Two tiny models of the same shape, and runs whose store holds versions published from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from mortal_steps.store import RunStore
from mortal_steps.types import GenerateRequest, Problem, SamplingParams
from tests.support.paths import VLLM_PYTHON
from tests.support.rollout.tiny_model import (
    build_tiny_mixture,
    build_tiny_model,
    publish,
    with_tensors_to_spare,
)

PROBLEMS = [Problem(id=f"train-{row}", prompt=f"{row}abc=>") for row in range(3)]


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


@pytest.fixture(scope="session")
def vllm_python() -> str:
    if not VLLM_PYTHON.exists():
        pytest.fail(
            f"no interpreter with vLLM at {VLLM_PYTHON}: build one with `make vllm-env`, or name "
            "one in MORTAL_VLLM_PYTHON"
        )
    return str(VLLM_PYTHON)


@pytest.fixture(scope="session")
def folders(model_a, model_b, other_shape, tmp_path_factory):
    make = tmp_path_factory.mktemp
    return {
        "model_a": model_a,
        "model_b": model_b,
        "untied_a": with_tensors_to_spare(build_tiny_model(make("untied_a"), seed=4, tied=False)),
        "untied_b": build_tiny_model(make("untied_b"), seed=5, tied=False),
        "experts_a": build_tiny_mixture(make("experts_a"), seed=6),
        "experts_b": build_tiny_mixture(make("experts_b"), seed=7),
        "other_shape": other_shape,
        "empty": make("empty"),
    }


@pytest.fixture(scope="session")
def run(folders, tmp_path_factory):
    """A run with two versions, and requests that use both."""
    store = RunStore(tmp_path_factory.mktemp("run"))
    batch = store.write_record("batch.json", PROBLEMS, list[Problem])
    v0, v1 = publish(store, 0, folders["model_a"]), publish(store, 1, folders["model_b"])
    swapped = publish(store, 2, folders["model_a"], probe_folder=folders["model_b"])
    requests = [
        GenerateRequest(
            stage="generate",
            step=step,
            shard=0,
            problems=batch,
            start=0,
            stop=3,
            num_generations=2,
            sampling=SamplingParams(max_tokens=6),
            weights=weights,
            output=output,
        )
        for step, weights, output in (
            (0, v0, "v0.json"),
            (1, v1, "v1.json"),
            (0, v0, "v0-again.json"),
        )
    ]
    return store, requests, swapped
