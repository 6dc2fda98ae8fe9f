"""How chats with tools are rendered and read, settled as TRL's GRPOTrainer does in its constructor.

A template has to render calls and their answers, TRL has to know how its calls are read, and what
it rendered must stay as it is when more follows; where the latter is not so, TRL may have another
version of the template for training.
"""

from __future__ import annotations

import copy
from typing import Any

from trl import chat_template_utils as trl_templates

from mortal_steps.errors import ModelError
from mortal_steps.policy import private
from mortal_steps.types import ChatSettings

FOR_TRAINING = "_training"
"""At the end of the name of a template that TRL puts in another's place."""


def settle_chat(tokenizer: Any, name: str) -> ChatSettings:
    """Return the settings for the tokenizer of model `name`, which stays as it is. Raises
    `ModelError` that names its template and those that would do."""
    try:
        return _settled(tokenizer)
    except _Unusable as error:
        raise ModelError(
            f"[environment]: tools cannot be called with {name}: its chat template "
            f"{_likeness(tokenizer)}{error}. Choose a model with one of these templates, or set "
            f"`chat_template` of its tokenizer to one of them: {', '.join(_supported(tokenizer))}"
        ) from error.__cause__


class _Unusable(Exception):
    """Says why a template cannot be used."""


def _settled(tokenizer: Any) -> ChatSettings:
    """Return what TRL settles; raise `_Unusable`."""
    read = copy.copy(tokenizer)  # TRL sets an attribute
    if read.chat_template is None:
        raise _Unusable("is missing")
    try:
        if not trl_templates.supports_tool_calling(read):
            raise _Unusable("renders no tool calls, or no answers to them")
        added = _response_template(read)
        training = None
        if not trl_templates.is_chat_template_prefix_preserving(read):
            training = _training_template(read)
    except _Unusable:
        raise
    except Exception as error:  # whatever the model's own template raises
        raise _Unusable(f"raises {type(error).__name__} for a call: {error}") from error
    return ChatSettings(chat_template=training, response_template=added)


def _response_template(tokenizer: Any) -> dict[str, Any] | None:
    """Return what TRL adds for reading calls; None if the tokenizer brings its own."""
    if getattr(tokenizer, "response_template", None) is not None:
        return None
    if getattr(tokenizer, "response_schema", None) is not None:
        raise _Unusable(
            "has a `response_schema`, which this version of transformers does not read any more; "
            "give the tokenizer a `response_template`"
        )
    try:
        return dict(trl_templates.add_response_schema(tokenizer).response_template)
    except ValueError as error:
        raise _Unusable(
            "is none whose calls TRL knows how to read, and the tokenizer has no "
            "`response_template` of its own"
        ) from error


def _training_template(tokenizer: Any) -> str:
    try:
        return str(trl_templates.get_training_chat_template(tokenizer))
    except ValueError as error:
        raise _Unusable(
            "renders a call in another way once it is answered, and TRL has no other version of it"
        ) from error


def _likeness(tokenizer: Any) -> str:
    """Say which of TRL's templates the tokenizer has, or which one is most like its own."""
    template, known = tokenizer.chat_template, _known()
    if isinstance(template, dict):
        template = template.get("default")
    if template is None:
        return ""
    lines = set(template.splitlines())
    shared = {name: len(lines & set(text.splitlines())) for name, text in known.items()}
    nearest = max(shared, key=lambda name: (known[name] == template, shared[name]))
    if known[nearest] == template:
        return f"({nearest!r} in TRL) "
    if 2 * shared[nearest] < len(lines):
        return "(none that TRL has) "
    return f"(like {nearest!r} in TRL, but not the same text) "


def _supported(tokenizer: Any) -> list[str]:
    """Return the names of TRL's templates with which the tokenizer would do."""
    names = []
    for name, text in _known().items():
        other = copy.copy(tokenizer)
        other.chat_template = text
        other.response_template = other.response_schema = None
        try:
            _settled(other)
        except _Unusable:
            continue
        names.append(name)
    return names


def _known() -> dict[str, str]:
    """Return the texts of TRL's templates, by name."""
    return {
        file.stem: file.read_text(encoding="utf-8")
        for file in private.template_files()
        if not file.stem.endswith(FOR_TRAINING)
    }
