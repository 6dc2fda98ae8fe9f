"""Loading and saving the tokenizer of the model that is trained."""

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mortal_steps.errors import ModelError
from mortal_steps.models.model_class import read_model_config

SIDES = ("padding_side", "truncation_side")


def load_tokenizer(model_path: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """Return the tokenizer at `model_path`, a folder or hub name, set up for training. Raises
    `ModelError` without a model or a usable tokenizer there."""
    read_model_config(model_path, trust_remote_code)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ModelError(
            f"the model {model_path} has no usable tokenizer: {type(error).__name__}: {error}"
        ) from error
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
    for side in SIDES:  # no arguments above: those are saved as the model's own
        setattr(tokenizer, side, "left")
    return tokenizer


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer's files, without how it was loaded, which depends on HF_HUB_OFFLINE: the
    files are the same everywhere. It pads and cuts off where the model's own does."""
    for how_it_was_loaded in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(how_it_was_loaded, None)
    own = {side: tokenizer.init_kwargs[side] for side in SIDES if side in tokenizer.init_kwargs}
    in_training = {side: getattr(tokenizer, side) for side in own}
    try:
        for side, value in own.items():
            setattr(tokenizer, side, value)
        tokenizer.save_pretrained(folder)
    finally:
        for side, value in in_training.items():
            setattr(tokenizer, side, value)
