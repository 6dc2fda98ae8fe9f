"""The class of transformers' that a model is trained as."""

from __future__ import annotations

from typing import Any


def trained_class(config: Any) -> Any:
    """That of TRL's `create_model_from_path`: the architecture that the model's configuration
    names, which for a model that also takes pictures is no `AutoModelForCausalLM`; that one where
    the name is not transformers' own."""
    import transformers

    named = (config.architectures or [""])[0]
    return getattr(transformers, named, None) or transformers.AutoModelForCausalLM


def load_model(path: str, **options: Any) -> Any:
    """The model in a folder as a causal language model, or as it is trained where transformers has
    none for it. Raises `OSError` and `ValueError`."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(path, **options)
    except ValueError:
        trusts = {"trust_remote_code": options.get("trust_remote_code", False)}
        kind = trained_class(AutoConfig.from_pretrained(path, **trusts))
        if kind is AutoModelForCausalLM:
            raise
        return kind.from_pretrained(path, **options)
