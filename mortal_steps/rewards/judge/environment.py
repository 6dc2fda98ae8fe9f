"""The reward environment that lets a language model score completions."""

import asyncio
import functools
import os
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from mortal_steps.errors import JudgeError
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.judge.ledger import Payment, current_run, shared_ledger
from mortal_steps.rewards.judge.question import (
    Grade,
    Question,
    RefusedError,
    UnavailableError,
    UnusableAnswerError,
    question_about,
    read_grade,
)
from mortal_steps.rewards.kinds.judge import OPENAI, OPENAI_KEY, JudgeTerm
from mortal_steps.system.retry import backoff
from mortal_steps.system.threads import event_loop_in_thread

OPENAI_ADDRESS = "OPENAI_BASE_URL"
"""Environment variable that OpenAI's own client reads."""
FIRST_DELAY_S = 0.5
"""Seconds before the second request for a question; doubled before each further one."""
LONGEST_DELAY_S = 20.0
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
        run = current_run()
        from mortal_steps.rewards.judge.endpoint import Endpoint  # whose client takes a second

        settings = {name: value for name, value in settings.items() if value is not None}
        self.term = JudgeTerm(
            model=model, score_range=tuple(score_range), **{**_address(settings), **settings}
        )
        self._endpoint = Endpoint(self.term.base_url, self.term.key_variable)
        self._ledger = shared_ledger()
        self._call_s = SHARE * run.call_timeout_s
        self._given_up: dict[str, str] = {}
        """Why a question is not asked again, by question: its tries are spent, each of which cost
        something."""

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
        become the logged column `judge_reason`. What is answered stays answered: after a failure,
        another call asks the rest.

        Raises `JudgeError` if one has no score after all tries, `ConfigError` for a wrong key,
        address or model, and `ValueError` for a prompt that names a column that is not there.
        """
        questions = [
            question_about(self.term, completion, prompt, _row(kwargs, row, len(completions)))
            for row, (completion, prompt) in enumerate(zip(completions, prompts, strict=True))
        ]
        grades = self._grades({question.digest(): question for question in questions})
        found = [grades[question.digest()] for question in questions]
        if "log_extra" in kwargs:
            kwargs["log_extra"]("judge_reason", [grade.reason for grade in found])
        return [grade.score for grade in found]

    def _grades(self, questions: Mapping[str, Question]) -> dict[str, Grade]:
        self._ledger.refresh()
        waiting = {key: each for key, each in questions.items() if self._ledger.find(key) is None}
        asking = self._ask_all(waiting)
        why_not = asyncio.run_coroutine_threadsafe(asking, _event_loop()).result()
        if why_not:
            raise JudgeError(
                f"no score for {len(why_not)} of {len(questions)} questions to {self.term.model} "
                f"at {self._endpoint.base_url}: {why_not[0]}"
            )
        return {key: grade for key in questions if (grade := self._ledger.find(key))}

    async def _ask_all(self, questions: Mapping[str, Question]) -> list[str]:
        """Return why questions have no score, for those that have none."""
        until = monotonic() + self._call_s
        waiting, why_not = iter(questions.items()), list[str]()

        async def ask_what_waits() -> None:
            for key, question in waiting:
                why = await self._ask(key, question, until)
                if why is not None:
                    why_not.append(why)

        asking = [asyncio.ensure_future(ask_what_waits()) for _ in range(self.term.concurrency)]
        try:
            await asyncio.gather(*asking)
        finally:
            for one in asking:  # after an error: nobody else's question will fare better
                one.cancel()
        return why_not

    async def _ask(self, key: str, question: Question, until: float) -> str | None:
        """Ask until the ledger has a score for the question; return why it has none in the end."""
        if key in self._given_up:
            return self._given_up[key]
        failures = unusable = 0
        delays_s = backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
        problem = "there was no time left to ask it"
        while (left := until - monotonic()) > 0:
            try:
                await self._pay_for_one(key, question, min(self.term.timeout, left))
                return None
            except UnusableAnswerError as error:
                unusable, problem = unusable + 1, f"{error} (answers: {unusable + 1})"
                if unusable == self.term.tries:
                    self._given_up[key] = problem
                    return problem
            except RefusedError as error:
                self._given_up[key] = str(error)
                return str(error)
            except UnavailableError as error:
                failures, problem = failures + 1, f"{error} (requests: {failures + 1})"
                delay = max(next(delays_s), error.retry_after_s)
                if monotonic() + delay >= until:
                    return problem
                await asyncio.sleep(delay)
        return problem

    async def _pay_for_one(self, key: str, question: Question, timeout_s: float) -> None:
        reply = await self._endpoint.ask(question, timeout_s)
        unusable, score = None, None
        try:
            grade = read_grade(reply.text, self.term.score_range)
            score, reason = grade.score, grade.reason
        except UnusableAnswerError as error:
            unusable, reason = error, str(error)
        prices = self.term.prices
        paid = reply.prompt_tokens * prices.input + reply.completion_tokens * prices.output
        payment = Payment(
            question=key,
            score=score,
            reason=reason,
            model=self.term.model,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            dollars=paid / 1e6,
        )
        self._ledger.pay(payment)
        if unusable is not None:
            raise unusable


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    return event_loop_in_thread("judges")


def _address(settings: dict[str, Any]) -> dict[str, Any]:
    """Return OpenAI's address and key variable, unless `settings` have one."""
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
