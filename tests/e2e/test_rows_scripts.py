"""Scripts for TRL's trainers that learn from rows, with one line changed: the import. They train
the same weights as stock TRL."""

import pytest

from tests.support.rows_scripts import both, differing

__all__ = ["both"]

CHAT = (
    *("--model_name_or_path", "model", "--output_dir", "chat", "--bf16", "False", "--use_cpu"),
    *("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"),
    *("--num_train_epochs", "2", "--eval_strategy", "steps", "--eval_steps", "2"),
    *("--use_peft", "--lora_r", "4", "--lora_alpha", "8", "--lora_dropout", "0.1"),
    *("--neftune_noise_alpha", "5", "--learning_rate", "1e-3", "--report_to", "none"),
)
SCRIPTS = {
    "sft": ("sft", ()),
    "chat": ("chat", CHAT),
    "dpo": ("dpo", ()),
    "kto": ("kto", ()),
    "reward": ("reward", ()),
}
"""Each by its output folder, with its arguments."""


@pytest.mark.parametrize("output", SCRIPTS)
def test_the_weights_are_those_of_stock_trl(both, output):
    run, _, stock = both[output]
    assert differing(run, stock) == []
