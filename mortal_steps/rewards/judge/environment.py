"""The reward environment that lets a language model score completions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.judge.place import place, shared_ledger
from mortal_steps.rewards.judge.question import (
    DEFAULT_PROMPT,
    DEFAULT_RUBRIC,
    Question,
    messages_for,
)

OPENAI = "https://api.openai.com/v1"
OPENAI_ADDRESS = "OPENAI_BASE_URL"
OPENAI_KEY = "OPENAI_API_KEY"
"""Environment variables that OpenAI's own client reads."""
CONCURRENCY = 8
"""Requests at a time, unless the settings say otherwise."""


class LLMJudgeEnvironment(RewardEnvironment):
    """The score that a model gives a completion, behind any OpenAI-compatible API.

    `rubric` says what to judge by; `prompt` is the user's message, in which `{prompt}`,
    `{completion}` and `{column}` of the dataset are replaced. `base_url`: `OPENAI_BASE_URL` of the
    environment by default, or else OpenAI's address. `api_key_env` names the environment variable
    with the key; for a default address `OPENAI_API_KEY`, for another one none.
    `parameters` are further fields of a request. `prices`: dollars for a million tokens of `input`
    and of `output`. `concurrency`: requests at a time, `CONCURRENCY` by default. `timeout`: seconds
    for one request; `tries`: unusable answers that are paid for one question.
    """

    name = "LLMJudge"

    def __init__(
        self,
        model: str,
        score_range: tuple[float, float] = (0.0, 10.0),
        *,
        rubric: str = DEFAULT_RUBRIC,
        prompt: str = DEFAULT_PROMPT,
        base_url: str | None = None,
        api_key_env: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        prices: Mapping[str, float] | None = None,
        concurrency: int | None = None,
        timeout: float = 30.0,
        tries: int = 3,
    ) -> None:
        # Here, for the client takes a second to import.
        from mortal_steps.rewards.judge.endpoint import Endpoint
        from mortal_steps.rewards.judge.judge import Judge, Patience, Prices

        self.given: dict[str, Any] = {
            "model": model,
            "score_range": tuple(score_range),
            "rubric": _unless(rubric, DEFAULT_RUBRIC),
            "prompt": _unless(prompt, DEFAULT_PROMPT),
            "base_url": base_url,
            "api_key_env": api_key_env,
            "parameters": None if parameters is None else dict(parameters),
            "prices": None if prices is None else dict(prices),
            "concurrency": concurrency,
            "timeout": timeout,
            "tries": tries,
        }
        """What it was made with; None: the default."""
        self.low, self.high = _ascending(score_range)
        self.model, self.rubric, self.prompt = model, rubric, prompt
        self.parameters = {"temperature": 0.0} if parameters is None else dict(parameters)
        self.base_url, api_key_env = _address(base_url, api_key_env)
        """Address of the API."""
        self._judge = Judge(
            Endpoint(self.base_url, api_key_env),
            shared_ledger(),
            prices=Prices(**(prices or {})),
            patience=Patience(call_s=place().patience_s, request_s=timeout, tries=tries),
            concurrency=concurrency or CONCURRENCY,
        )

    def prompt_text(self, prompt: Any) -> str:
        """All turns of a chat, each with its role; of a single message, its text."""
        if isinstance(prompt, str) or len(prompt) == 1:
            return super().prompt_text(prompt)
        return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)

    def score(self, completion: str, prompt: str, **kwargs: Any) -> float:
        """See `score_batch`."""
        columns = {name: [value] for name, value in kwargs.items() if not callable(value)}
        return self.score_batch([completion], [prompt], **columns)[0]

    def score_batch(
        self, completions: Sequence[str], prompts: Sequence[str], **kwargs: Any
    ) -> list[float]:
        """The judge's score of each completion; equal questions are asked once. Its reasons become
        the logged column `judge_reason`.

        Raises `JudgeError` if one has no score after all tries, `ConfigError` for a wrong key,
        address or model, and `ValueError` for a prompt with a place that has no column.
        """
        questions = [
            self.question(completion, prompt, _row(kwargs, row, len(completions)))
            for row, (completion, prompt) in enumerate(zip(completions, prompts, strict=True))
        ]
        grades = self._judge.grades(questions) if questions else []
        if "log_extra" in kwargs:
            kwargs["log_extra"]("judge_reason", [grade.reason for grade in grades])
        return [grade.score for grade in grades]

    def question(self, completion: str, prompt: str, columns: Mapping[str, Any]) -> Question:
        """The question to the judge about a completion."""
        values = {**columns, "prompt": prompt, "completion": completion}
        return Question(
            base_url=self.base_url,
            model=self.model,
            messages=messages_for(
                rubric=self.rubric, prompt=self.prompt, low=self.low, high=self.high, values=values
            ),
            low=self.low,
            high=self.high,
            parameters=self.parameters,
        )


def _ascending(score_range: tuple[float, float]) -> tuple[float, float]:
    low, high = score_range
    if not low < high:
        raise ValueError(
            f"score_range = {list(score_range)} of a judge: the first must be the lower one"
        )
    return low, high


def _unless(text: str, default: str) -> str | None:
    return None if text == default else text


def _address(base_url: str | None, api_key_env: str | None) -> tuple[str, str | None]:
    """Without an address the one that OpenAI's own client takes, with the key that is for it."""
    address = (base_url or os.environ.get(OPENAI_ADDRESS) or OPENAI).rstrip("/")
    if api_key_env is None:
        key_is_there = base_url is None and OPENAI_KEY in os.environ
        api_key_env = OPENAI_KEY if address == OPENAI or key_is_there else None
    return address, api_key_env


def _row(columns: Mapping[str, Any], row: int, length: int) -> dict[str, Any]:
    return {
        name: column[row]
        for name, column in columns.items()
        if isinstance(column, list | tuple) and len(column) == length
    }
