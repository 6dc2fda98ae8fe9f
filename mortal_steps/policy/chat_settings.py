"""How a run's chats with tools are rendered and read: `data/chat.json`, from its beginning on."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from mortal_steps.config import ModelConfig
from mortal_steps.environments.chat import Chat
from mortal_steps.errors import DataError, ModelError, StoreError
from mortal_steps.models.hub import model_folder
from mortal_steps.policy.starting_model.prompt_lengths import tokenizer_of
from mortal_steps.rollout.episodes.base import CHAT_FILE
from mortal_steps.store import RunStore
from mortal_steps.types import ChatSettings

ANSWER = {"role": "tool", "name": "dummy", "content": "dummy"}


def chat_of(model: ModelConfig, template_options: Mapping[str, Any]) -> ChatSettings:
    """Return how chats with tools are rendered and read; this needs no weights. Raises `ModelError`
    if tools cannot be called with the model's chat template and these options of it."""
    return _settled(tokenizer_of(model), model, template_options)


def keep_chat(
    store: RunStore, model: ModelConfig, model_path: str, template_options: Mapping[str, Any]
) -> None:
    """Commit how chats with tools are rendered and read in the run. Raises `ModelError` as
    `chat_of` does, and `StoreError` if the run has begun with other settings: what is sampled next
    would be rendered differently from what was sampled before."""
    # Imported where used: imports torch.
    from mortal_steps.policy.model_files.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(model_folder(model_path, model), model.trust_remote_code)
    settings = _settled(tokenizer, model, template_options)
    found = store.find_whole(CHAT_FILE, ChatSettings, "how chats are rendered is settled again")
    if found is None and next(store.path("steps").glob("*/generations-*"), None) is not None:
        raise StoreError(
            f"{store.path(CHAT_FILE)} is missing or damaged, and completions were sampled with "
            "what it said; restore it from a copy, or fork the run"
        )
    if found is None:
        begun = replace(settings, date=datetime.now().date().isoformat())
        store.write_record(CHAT_FILE, begun, ChatSettings)
    elif replace(found[1], date=None) != settings:
        raise StoreError(
            f"{store.path(CHAT_FILE)}: the run began with another chat template, or another way to "
            "read calls, than TRL and the model's tokenizer give now; continue with the versions "
            "of TRL and of the model that it began with, or fork it"
        )


def _settled(
    tokenizer: Any, model: ModelConfig, template_options: Mapping[str, Any]
) -> ChatSettings:
    # Imported where used: imports TRL.
    from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat

    name = "[model.new]" if model.new else model.name_or_path
    settings = settle_chat(tokenizer, name)
    try:
        Chat(tokenizer, settings, template_options).suffix_ids([ANSWER], tokenizer.eos_token_id)
    except DataError as error:  # TRL's checks know nothing of the options
        raise ModelError(
            f"[environment]: {error} (model: {name}; training.trl.chat_template_kwargs = "
            f"{dict(template_options)})"
        ) from error
    return settings
