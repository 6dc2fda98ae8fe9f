"""What transformers makes of a model: its configuration, and the class that it is trained as."""

from collections.abc import Sequence
from typing import Any

from mortal_steps.errors import ModelError

CLASSIFIER = "ForSequenceClassification"
"""Ends the names of transformers' classes of models that score."""


def read_model_config(path: str, trust_remote_code: bool) -> Any:
    """Return the model's configuration, a transformers `PretrainedConfig`; raises `ModelError`."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"the model {path} comes with code of its own (auto_map in its config.json); read "
                "it, and set model.trust_remote_code = true (for a teacher: its own "
                "trust_remote_code) to let it run"
            ) from error
        raise ModelError(f"no usable model at {path}: {error}") from error


def trained_class(config: Any) -> Any:
    """Return the class that TRL's `create_model_from_path` takes: the architecture that the model's
    configuration names or, where that is not transformers' own, `AutoModelForCausalLM`."""
    import transformers

    named = (config.architectures or [""])[0]
    return getattr(transformers, named, None) or transformers.AutoModelForCausalLM


def load_model(path: str, **options: Any) -> Any:
    """Return the model in a folder as a causal language model, or as it is trained where
    transformers has none for it. Raises `OSError` and `ValueError`."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(path, **options)
    except ValueError:
        trusts = {"trust_remote_code": options.get("trust_remote_code", False)}
        kind = trained_class(AutoConfig.from_pretrained(path, **trusts))
        if kind is AutoModelForCausalLM:
            raise
        return kind.from_pretrained(path, **options)


def check_known(token_ids: Sequence[int], model: Any) -> None:
    """Raise `ModelError` for a token that the model has no embedding of: torch would only say that
    an index is out of range, and a GPU be of no use afterwards."""
    known, largest = model.get_input_embeddings().weight.shape[0], max(token_ids)
    if largest >= known:
        raise ModelError(
            f"the tokenizer makes the token {largest} of a prompt, and {model.config.model_type} "
            f"has embeddings of the tokens 0 to {known - 1}: tokens were added to the tokenizer "
            "alone. Save the model anew after model.resize_token_embeddings(len(tokenizer)), or "
            "with the tokenizer that it was trained with"
        )
