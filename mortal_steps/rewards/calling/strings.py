"""Reward functions that take plain strings, even if prompts are chats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mortal_steps.rewards.base import RewardFunction, asked, text_of
from mortal_steps.rewards.calling.dispatch import is_async


def given_strings(function: RewardFunction) -> RewardFunction:
    """The function, given the texts of prompts and completions; async if the function is."""

    def called(**arguments: Any) -> Any:
        return function(**_as_strings(arguments))

    async def awaited(**arguments: Any) -> Any:
        return await cast(Any, function(**_as_strings(arguments)))

    return awaited if is_async(function) else called


def _as_strings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **arguments,
        "prompts": [asked(prompt) for prompt in arguments["prompts"]],
        "completions": [text_of(completion) for completion in arguments["completions"]],
    }
