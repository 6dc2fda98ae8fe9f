"""Makes a reward term an instance of its class, which may be a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from mortal_steps.config import RewardTerm
from mortal_steps.config.loader import in_plain_words
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import Loadable
from mortal_steps.rewards.users_code.importing import import_spec


def in_its_class(term: Loadable) -> Loadable:
    """The term itself, unless its `type` names a user's class: then an instance of that class.

    Raises `RewardError` if the class does not exist, is no `RewardTerm`, or does not take the
    settings.
    """
    if type(term) is not RewardTerm:
        return term
    named = f"rewards.terms: type = {term.type!r}"
    kind = import_spec(term.type, named, "Class", inspect.isclass)
    if not (inspect.isclass(kind) and issubclass(kind, RewardTerm)):
        raise RewardError(
            f"{named} is no subclass of RewardTerm, which stands in "
            "mortal_steps.rewards.kinds; derive it from that"
        )
    try:
        return kind.model_validate(term.model_dump())
    except ValidationError as error:
        raise RewardError(f"{named}: {'; '.join(map(_explain, error.errors()))}") from None


def _explain(detail: Mapping[str, Any]) -> str:
    key = ".".join(map(str, detail["loc"]))
    return f"{key} = {detail['input']!r}: {in_plain_words(detail['msg'])}"
