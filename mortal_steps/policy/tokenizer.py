"""The tokenizer of a model that is to be trained, or what is wrong with it."""

from __future__ import annotations

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from mortal_steps.errors import ModelError


def load_tokenizer(model_path: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """Raises `ModelError` for a folder or name that has no model, or no usable tokenizer."""
    try:
        AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ModelError(f"no usable model at {model_path}: {error}") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model_path,
            padding_side="left",
            truncation_side="left",
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"the model {model_path} has no usable tokenizer: {error}") from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        # Without its files, transformers makes an empty tokenizer up instead of failing.
        raise ModelError(
            f"the model {model_path} has no tokenizer; save one there with "
            "tokenizer.save_pretrained"
        )
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of {model_path} has no end-of-sequence token; set `eos_token` in its "
            "tokenizer_config.json"
        )
    return tokenizer
