"""The estimate of training's memory in bfloat16 and on ranks, beside the bytes that steps take."""

import pytest

from tests.support.estimated_memory import FOUR, STORED, build_models, check_rank, check_train_step

CASES = [
    ("qwen2", {"autocast": True, **FOUR}),
    ("qwen2", {"autocast": True, **STORED}),
    ("qwen2", {"autocast": True, "use_lora": True, "dtype": "bfloat16", **FOUR}),
    ("llama", {"autocast": True, **FOUR}),
    ("llama", {"autocast": True, "beta": 0.1, **FOUR}),
    ("llama", {"autocast": True, "use_lora": True}),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return build_models(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(("model", "options"), CASES)
def test_a_train_step_takes_the_memory_that_was_estimated(
    models, tmp_path, model, options, monkeypatch
):
    check_train_step(models, tmp_path, model, options, monkeypatch)


@pytest.mark.parametrize(
    ("model", "options"),
    [("qwen2", {"autocast": True, **FOUR}), ("llama", {"autocast": True, "beta": 0.1})],
)
def test_one_of_two_ranks_takes_the_memory_that_was_estimated(models, tmp_path, model, options):
    check_rank(models, tmp_path / "ranks", model, options)
