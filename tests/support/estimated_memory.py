"""Models whose train step is estimated, and the estimate beside the bytes that it takes."""

import pytest
from trl.trainer import utils

from mortal_steps.compute.memory import training_memory
from mortal_steps.models.shape import find_shape, read_shape
from tests.support.measured_memory import build, measure
from tests.support.policy.ranks import measured_on_ranks

PROMPT, COMPLETION = 32, 96
MOST_OFF = 0.15
SIZES = {
    "prompt": PROMPT,
    "completion": COMPLETION,
    "batch_size": 4,
    "num_generations": 4,
}
WIDE = {
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
DEEP = WIDE | {
    "vocab_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 12,
    "tie_word_embeddings": False,
}
MODELS = {"qwen2": ("qwen2", WIDE), "llama": ("llama", DEEP)}
STORED, FOUR = {"gradient_checkpointing": False}, {"gradient_accumulation_steps": 4}


def build_models(folder):
    """Return the folder of each model."""
    return {
        name: build(folder / name, model_type=kind, **shape)
        for name, (kind, shape) in MODELS.items()
    }


def check_train_step(models, folder, model, options, monkeypatch):
    # Without Triton, on a CPU alone, TRL's buffers are wider than these small vocabularies.
    vocabulary = MODELS[model][1]["vocab_size"]
    monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", vocabulary)
    config, measured = measure(models[model], folder, **SIZES, **options)
    expected = _expected(config, models[model], options.get("autocast", False))
    static = expected.weights + expected.optimizer + expected.teacher
    assert static == pytest.approx(measured.static, rel=0.01)
    assert expected.total == pytest.approx(measured.peak, rel=MOST_OFF)


def check_rank(models, folder, model, options):
    """One of two."""
    config, measured = measured_on_ranks(models[model], folder, **SIZES, **options)
    expected = _expected(config, models[model], autocast=True)
    assert expected.total == pytest.approx(measured.peak, rel=MOST_OFF)


def _expected(config, folder, autocast):
    shape, teacher = read_shape(folder / "config.json"), config.algorithm.teacher_model
    return training_memory(
        *(config.model, config.training, shape),
        prompt=PROMPT,
        autocast=autocast,
        on_gpu=False,
        teacher=(teacher, find_shape(teacher)) if teacher else None,
    )
