"""Loading and saving the tokenizer of the model that is trained."""

from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from mortal_steps.errors import ModelError


def load_tokenizer(model_path: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """Return the tokenizer at `model_path`, a folder or hub name, set up for training. Raises
    `ModelError` without a model or a usable tokenizer there."""
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


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer's files, without how it was loaded, which depends on HF_HUB_OFFLINE: the
    files are the same everywhere."""
    for how_it_was_loaded in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(how_it_was_loaded, None)
    tokenizer.save_pretrained(folder)
