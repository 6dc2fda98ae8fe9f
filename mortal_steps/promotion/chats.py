"""How a judged model's chats with tools are rendered and read: by its own chat template.

A run has settled that for its own model (`data/chat.json`). For a model with another template, such
as one of another family that is in production, it is settled once, in the judgement's folder.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.compute.local import call_once
from mortal_steps.errors import CorruptFileError, ModelError
from mortal_steps.orchestration.trials.opening import JudgingPlan, in_folder
from mortal_steps.rollout.episodes.base import CHAT_FILE, read_chat_settings
from mortal_steps.runs.run import Run
from mortal_steps.serving.bases import tokenizer_files
from mortal_steps.store import RunStore
from mortal_steps.types import ChatSettings

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_FILE = "tokenizer_config.json"
DECIDING = ("chat_template", "response_template", "response_schema")
"""Keys of the tokenizer's configuration that decide how chats are rendered and read."""

Template = Mapping[str, Any]
"""The values of these keys, as far as a model has them."""


class JudgedChats:
    """The chats of models that are judged as models of a run."""

    def __init__(self, store: RunStore, run: Run, plan: JudgingPlan) -> None:
        """`store` holds the models and their judgements."""
        self._store, self._run, self._plan = store, run, plan

    def other_template(self, path: str) -> Template | None:
        """Return the template of the model in this folder; None if it is the run's, or if there are
        no tools, without which a model's own is taken anyway. Raises `CorruptFileError`."""
        if not self._plan.code.environment.is_used:
            return None
        found = template_in(self._store.path(path).iterdir())
        return None if found == self._template_of_run else found

    def settings(self, path: str, judged: str) -> ChatSettings | None:
        """Return how the model's chats are rendered and read; None without tools. Another template
        than the run's is settled in the folder `judged`. Raises `ModelError` if tools cannot be
        called with it, `StoreError` without what the run has settled, and `CorruptFileError`."""
        if not self._plan.code.environment.is_used:
            return None
        if self.other_template(path) is None:
            return read_chat_settings(self._run.store)
        own = RunStore(self._store.path(judged).absolute())
        if own.find_whole(CHAT_FILE, ChatSettings, "how chats are rendered is settled again"):
            return read_chat_settings(own)
        return self._settled(self._store.path(path).absolute(), own)

    def _settled(self, model: Path, own: RunStore) -> ChatSettings:
        # In a process of the actor: TRL settles it, and that imports torch.
        actor = self._plan.workers["actor"]
        plan = actor.kwargs["plan"]
        named = plan.trainer.model.model_copy(update={"name_or_path": str(model)})
        plan = dataclasses.replace(plan, trainer=dataclasses.replace(plan.trainer, model=named))
        try:
            call_once(in_folder(actor, own.root, model_path=str(model), plan=plan), "keep_chat")
        except ModelError as error:
            raise ModelError(
                f"the model {model.name} has another chat template than that of run "
                f"{self._run.info.run_id}, and cannot be compared with it where there are tools: "
                f"{error}. Promote the run's model under another name (--name)"
            ) from error
        return read_chat_settings(own)

    @functools.cached_property
    def _template_of_run(self) -> Template:
        return template_in(tokenizer_files(self._run))


def template_in(files: Iterable[Path]) -> Template:
    """Return the template among the files of a model. Raises `CorruptFileError`."""
    found: dict[str, Any] = {}
    for file in sorted(files, reverse=True):  # a template in a file of its own counts
        try:
            if file.name == TOKENIZER_FILE:
                read = json.loads(file.read_text(encoding="utf-8"))
                found |= {name: read[name] for name in DECIDING if read.get(name) is not None}
            elif file.name == TEMPLATE_FILE:
                found["chat_template"] = file.read_text(encoding="utf-8")
        except ValueError as error:
            raise CorruptFileError(f"{file} is damaged: {error}") from error
    return found
