"""The reward environment that lets a language model score completions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.judge import ledger
from mortal_steps.rewards.judge.question import question_about
from mortal_steps.rewards.kinds.judge import OPENAI, OPENAI_KEY, JudgeTerm

OPENAI_ADDRESS = "OPENAI_BASE_URL"
"""Environment variable that OpenAI's own client reads."""
SHARE = 0.8
"""Part of a call's time limit that a judge may use, so that it can report itself what it waited
for."""


class LLMJudgeEnvironment(RewardEnvironment):
    """The score that a model gives a completion, behind any OpenAI-compatible API.

    `settings` are those of `type = "judge"` (`JudgeTerm`). Without a `base_url` it is asked where
    OpenAI's own client would ask: at `OPENAI_BASE_URL` or else OpenAI's address, with the key in
    `OPENAI_API_KEY`.
    """

    name = "LLMJudge"

    def __init__(
        self, model: str, score_range: tuple[float, float] = (0.0, 10.0), **settings: Any
    ) -> None:
        # Here, for the client takes a second to import.
        from mortal_steps.rewards.judge.endpoint import Endpoint
        from mortal_steps.rewards.judge.judge import Judge

        settings = {name: value for name, value in settings.items() if value is not None}
        self.term = JudgeTerm(
            model=model, score_range=tuple(score_range), **{**_address(settings), **settings}
        )
        run = ledger.current_run()
        self._judge = Judge(
            Endpoint(self.term.base_url, self.term.key_variable),
            ledger.shared_ledger(),
            self.term,
            call_s=SHARE * run.call_timeout_s,
        )

    def prompt_text(self, prompt: Any) -> str:
        """Return all turns of a chat, each with its role; of a single message, its text."""
        if isinstance(prompt, str) or len(prompt) == 1:
            return super().prompt_text(prompt)
        return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)

    def score(self, completion: str, prompt: str, **kwargs: Any) -> float:
        columns = {name: [value] for name, value in kwargs.items() if not callable(value)}
        return self.score_batch([completion], [prompt], **columns)[0]

    def score_batch(
        self, completions: Sequence[str], prompts: Sequence[str], **kwargs: Any
    ) -> list[float]:
        """Return the judge's score of each completion; equal questions are asked once. Its reasons
        become the logged column `judge_reason`.

        Raises `JudgeError` if one has no score after all tries, `ConfigError` for a wrong key,
        address or model, and `ValueError` for a prompt that names a column that is not there.
        """
        questions = [
            question_about(self.term, completion, prompt, _row(kwargs, row, len(completions)))
            for row, (completion, prompt) in enumerate(zip(completions, prompts, strict=True))
        ]
        grades = self._judge.grades(questions) if questions else []
        if "log_extra" in kwargs:
            kwargs["log_extra"]("judge_reason", [grade.reason for grade in grades])
        return [grade.score for grade in grades]


def _address(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the address of OpenAI's client with the variable of its key, unless `settings` have an
    address."""
    if "base_url" in settings:
        return {}
    address = os.environ.get(OPENAI_ADDRESS) or OPENAI
    has_key = address != OPENAI and OPENAI_KEY in os.environ
    return {"base_url": address, **({"api_key_env": OPENAI_KEY} if has_key else {})}


def _row(columns: Mapping[str, Any], row: int, length: int) -> dict[str, Any]:
    return {
        name: column[row]
        for name, column in columns.items()
        if isinstance(column, list | tuple) and len(column) == length
    }
