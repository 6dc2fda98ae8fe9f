"""What a quantized model leaves free for the rest of training."""

import pytest

from mortal_steps.compute.memory import training_memory
from mortal_steps.plan.loader import parse_config
from tests.support.shapes import SEVEN_BILLION


def memory_of(config, shape, **options):
    return training_memory(config.model, config.training, shape, **options)


def memory(lora, quantization):
    values = {
        "model": {"dtype": "bfloat16", "quantization": quantization},
        "training": {"use_lora": True, "lora": lora},
    }
    return memory_of(parse_config(values), SEVEN_BILLION, prompt=200, autocast=True)


def test_a_quantized_model_takes_a_third():
    whole, quantized = memory({}, {}), memory({}, {"load_in_4bit": True})
    assert whole.weights == pytest.approx(15.4e9, rel=0.02)
    assert quantized.weights == pytest.approx(5.9e9, rel=0.03)  # embeddings stay as they are
    assert quantized.optimizer == whole.optimizer / 2  # an adapter in bfloat16


def test_the_usual_layers_are_two_of_seven():
    few, all_of_them = memory({"target_modules": "peft-default"}, {}), memory({}, {})
    named = memory({"target_modules": ["q_proj", "v_proj"]}, {})
    assert few == named and few.optimizer < all_of_them.optimizer / 2


@pytest.mark.parametrize(
    ("optim", "size"),
    [
        ("adamw_torch_fused", 8),
        ("adamw_8bit", 2),
        ("lion_8bit", 1),
        ("adamw_torch_4bit", 1),
        ("paged_adamw_32bit", 0),
        ("rmsprop", 4),
        ("galore_adamw", 0),
    ],
)
def test_an_optimizer_that_is_not_known_takes_nothing(optim, size):
    values = {"model": {"dtype": "float32"}, "training": {"trl": {"optim": optim}}}
    found = memory_of(parse_config(values), SEVEN_BILLION, prompt=200, autocast=True)
    assert found.optimizer == size * SEVEN_BILLION.parameters
