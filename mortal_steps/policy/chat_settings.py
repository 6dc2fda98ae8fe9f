"""How a run's chats with tools are rendered and read: `data/chat.json`, from its beginning on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig
from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.models.hub import model_folder, tokenizer_folder
from mortal_steps.rollout.episodes.base import CHAT_FILE
from mortal_steps.store import RunStore
from mortal_steps.types import ChatSettings

logger = logging.getLogger(__name__)


def check_chat(model: ModelConfig) -> None:
    """Raise `ModelError` if tools cannot be called with the model's chat template; this needs no
    weights."""
    # Imported where used: imports torch.
    from mortal_steps.policy.starting_model.new_model import build_tokenizer

    if model.new is not None:
        _settled(build_tokenizer(model.new), "[model.new]")
    else:
        _settled_of(tokenizer_folder(model), model)


def keep_chat(store: RunStore, model: ModelConfig, model_path: str) -> None:
    """Commit how chats with tools are rendered and read in the run.

    Raises `ModelError` as `check_chat` does, and `StoreError` if the run has begun with other
    settings: what is sampled next would be rendered differently from what was sampled before.
    """
    settings = _settled_of(model_folder(model_path, model), model)
    try:
        found = store.find_record(CHAT_FILE, ChatSettings)
    except CorruptFileError as error:
        logger.warning("how chats are rendered is settled again: %s", error)
        found = None
    if found is None:
        store.write_record(CHAT_FILE, settings, ChatSettings)
    elif found[1] != settings:
        raise StoreError(
            f"{store.path(CHAT_FILE)}: the run began with another chat template, or another way to "
            "read calls, than TRL and the model's tokenizer give now; continue with the versions "
            "of TRL and of the model that it began with, or fork it"
        )


class ChatKeeper:
    """A worker that keeps how chats are rendered where there is no actor to do it, as in a
    trial."""

    def __init__(self, *, run_dir: str, model: ModelConfig, model_path: str) -> None:
        self._store = RunStore(Path(run_dir))
        self._model, self._model_path = model, model_path

    def keep(self) -> None:
        """See `keep_chat`."""
        keep_chat(self._store, self._model, self._model_path)


def _settled_of(folder: str, model: ModelConfig) -> ChatSettings:
    # Imported where used: imports torch.
    from mortal_steps.policy.model_files.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder, model.trust_remote_code)
    return _settled(tokenizer, "[model.new]" if model.new else model.name_or_path)


def _settled(tokenizer: Any, name: str) -> ChatSettings:
    # Imported where used: imports TRL.
    from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat

    return settle_chat(tokenizer, name)
