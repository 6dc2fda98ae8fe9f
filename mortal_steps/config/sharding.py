"""What does not go with a model that is dealt out to several ranks, as far as the keys tell."""

from mortal_steps.config.model import ModelConfig
from mortal_steps.config.training import TrainingConfig
from mortal_steps.errors import ConfigError

SHARDED_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop")
"""Optimizers whose state can be dealt out as the weights are."""


def check_sharding(model: ModelConfig, training: TrainingConfig) -> None:
    """Raise `ConfigError` for what `training.sharding = "full"` does not go with."""
    lora, optimizer = training.lora, str(training.trl.get("optim", "adamw_torch"))
    unfit = {
        "model.quantization": model.quantization,
        "training.lora.merge_final = true": training.use_lora and lora.merge_final,
        "training.lora.publish = 'merged'": training.use_lora and lora.publish != "adapter",
        "an adapter of embeddings (training.lora.target_modules)": (
            training.use_lora and lora.adapted_embeddings()
        ),
        f"training.trl.optim = {optimizer!r}": optimizer not in SHARDED_OPTIMIZERS,
        "training.trl.accelerator_config": "accelerator_config" in training.trl,
        "training.trl.torch_compile": training.trl.get("torch_compile"),
    }
    for name in (name for name, is_set in unfit.items() if is_set):
        raise does_not_go_with(training, name)


def does_not_go_with(training: TrainingConfig, name: str) -> ConfigError:
    return ConfigError(
        f"training.sharding = 'full' deals the model out to {training.ranks} ranks, which "
        f"does not go with {name}; leave one of the two out"
    )
