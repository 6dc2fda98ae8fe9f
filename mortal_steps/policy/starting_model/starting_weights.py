"""Can a model be trained that begins with the files of a folder? Asked before the first step.

transformers makes up what the files lack: it draws the weights at random, says so in its log, and
goes on. It has no opinion on what a model is trained for, either.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from safetensors import SafetensorError
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from mortal_steps.errors import ModelError
from mortal_steps.models.model_class import CLASSIFIER, read_model_config, trained_class

UNHEEDED = {
    "no_repeat_ngram_size": 0,
    "bad_words_ids": [],
    "sequence_bias": {},
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "exponential_decay_length_penalty": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "top_h": None,
    "num_beams": 1,
    "guidance_scale": 1.0,
    "watermarking_config": None,
    "stop_strings": [],
    "max_time": None,
}
"""Generation settings of a model that decide on tokens, and their values that do nothing. Stock TRL
passes others of its own to `generate`, such as `repetition_penalty`, and `generate` fills in
these."""


def check_starting_weights(
    path: str, *, trust_remote_code: bool = False, scores: bool = False
) -> tuple[str, ...]:
    """Raise `ModelError` unless the folder at `path` holds a language model that continues text or,
    where one that `scores` is trained, a model with one score for a text; with all of its weights
    as plain numbers. No tensor is read. Return what there is to warn of."""
    named = f"model.name_or_path: {path}"
    config = read_model_config(path, trust_remote_code)
    kind = trained_class(config)
    _check_kind(kind, config, named, scores=scores)
    try:
        with without_a_word():
            loaded: Any = kind.from_pretrained(
                path,
                device_map="meta",
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise ModelError(f"{named} cannot be loaded: {error}") from error
    missing = sorted(loaded[1]["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"{named}: its files lack the weights {missing[0]}{more}, for which transformers would "
            "draw random numbers; copy the model again, or save it anew with model.save_pretrained"
        )
    return () if scores else _unheeded(loaded[0].generation_config)


def _unheeded(settings: Any) -> tuple[str, ...]:
    found = {name: getattr(settings, name, None) for name in UNHEEDED}
    given = [f"{k} = {v}" for k, v in found.items() if v is not None and v != UNHEEDED[k]]
    if not given:
        return ()
    return (
        f"the model's generation settings have {', '.join(given)}, which stock TRL heeds where it "
        "samples with transformers. Here tokens are drawn by temperature, top_p, top_k and min_p "
        "of [rollout] alone",
    )


def _check_kind(kind: Any, config: Any, named: str, *, scores: bool) -> None:
    quantized = getattr(config, "quantization_config", None)
    if quantized:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise ModelError(
            f"{named} is quantized ({method or 'quantization_config in its config.json'}), and "
            "weights are trained in model.dtype; name the model that it was made of, or save it "
            "dequantized"
        )
    if config.is_encoder_decoder:
        raise ModelError(
            f"{named} is an encoder-decoder ({config.model_type}), and TRL trains decoders alone; "
            "name a causal language model"
        )
    if scores and kind.__name__.endswith(CLASSIFIER):
        if config.num_labels != 1:
            raise ModelError(
                f"{named} gives a text {config.num_labels} numbers (num_labels in its "
                "config.json), and a reward model gives it one; name a model with one label, or a "
                "causal language model"
            )
        return
    if kind is not AutoModelForCausalLM and not kind.can_generate():
        raise ModelError(
            f"{named} is a {kind.__name__} (architectures in its config.json), which generates no "
            "text; name a causal language model"
        )


@contextlib.contextmanager
def without_a_word() -> Iterator[None]:
    """Keep transformers from reporting what it loads and what it does not find."""
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
