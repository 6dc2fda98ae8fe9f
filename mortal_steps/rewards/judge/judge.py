"""Scores many questions: each is asked once, again if that may help, and paid once."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from mortal_steps.errors import JudgeError
from mortal_steps.rewards.judge.endpoint import Endpoint, RefusedError, Reply, UnavailableError
from mortal_steps.rewards.judge.ledger import Ledger, Payment
from mortal_steps.rewards.judge.question import Question
from mortal_steps.rewards.judge.reading import Grade, UnusableAnswerError, read_grade
from mortal_steps.system.threads import event_loop_in_thread

FIRST_DELAY_S = 0.5
"""Approximate seconds before the second request for a question; doubled before each further one."""

LONGEST_DELAY_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0

    def of(self, reply: Reply) -> float:
        """Return the price of an answer."""
        paid = reply.prompt_tokens * self.input + reply.completion_tokens * self.output
        return paid / 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long and how often a judge is asked before it counts as failed."""

    call_s: float
    """Seconds for all questions of one call together."""
    request_s: float
    """Seconds for one request."""
    tries: int
    """Answers without a usable score that are paid for per question."""


class Judge:
    """Asks one endpoint, with at most `concurrency` requests at a time; for one thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        ledger: Ledger,
        *,
        prices: Prices,
        patience: Patience,
        concurrency: int,
    ) -> None:
        self._endpoint = endpoint
        self._ledger = ledger
        self._prices = prices
        self._patience = patience
        self._concurrency = concurrency
        self._jitter = random.Random()
        self._given_up: dict[str, str] = {}
        """Why a question is not asked any more: it had its tries, which cost something each."""

    def grades(self, questions: Sequence[Question]) -> list[Grade]:
        """Return the grade of each question, in their order.

        What is answered stays answered: after a failure, another call asks the rest. Raises
        `JudgeError` if a question has no score in the end, and `ConfigError` at once for a wrong
        key, address or model.
        """
        self._ledger.refresh()
        asked = {question.digest(): question for question in questions}
        asking = self._ask_all({key: asked[key] for key in asked if self._ledger.find(key) is None})
        why_not = asyncio.run_coroutine_threadsafe(asking, _event_loop()).result()
        if why_not:
            raise JudgeError(
                f"no score for {len(why_not)} of {len(asked)} questions to "
                f"{questions[0].model} at {self._endpoint.base_url}: {why_not[0]}"
            )
        return [self._known(question.digest()) for question in questions]

    def _known(self, key: str) -> Grade:
        grade = self._ledger.find(key)
        assert grade is not None  # every question that had none was asked
        return grade

    async def _ask_all(self, questions: Mapping[str, Question]) -> list[str]:
        """Return why questions have no score, for those that have none."""
        until = monotonic() + self._patience.call_s
        waiting, why_not = iter(questions.items()), list[str]()

        async def ask_what_waits() -> None:
            for key, question in waiting:
                why = await self._ask(key, question, until)
                if why is not None:
                    why_not.append(why)

        asking = [asyncio.ensure_future(ask_what_waits()) for _ in range(self._concurrency)]
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
        problem = "there was no time left to ask it"
        while (left := until - monotonic()) > 0:
            try:
                await self._pay_for_one(key, question, min(self._patience.request_s, left))
                return None
            except UnusableAnswerError as error:
                unusable, problem = unusable + 1, f"{error} (answers: {unusable + 1})"
                if unusable == self._patience.tries:
                    self._given_up[key] = problem
                    return problem
            except RefusedError as error:
                self._given_up[key] = str(error)
                return str(error)
            except UnavailableError as error:
                failures, problem = failures + 1, f"{error} (requests: {failures + 1})"
                delay = max(self._delay_s(failures), error.retry_after_s)
                if monotonic() + delay >= until:
                    return problem
                await asyncio.sleep(delay)
        return problem

    async def _pay_for_one(self, key: str, question: Question, timeout_s: float) -> None:
        reply = await self._endpoint.ask(question, timeout_s)
        try:
            grade = read_grade(reply.text, low=question.low, high=question.high)
        except UnusableAnswerError as error:
            self._pay(key, question, reply, None, str(error))
            raise
        self._pay(key, question, reply, grade.score, grade.reason)

    def _pay(
        self, key: str, question: Question, reply: Reply, score: float | None, reason: str
    ) -> None:
        self._ledger.pay(
            Payment(
                question=key,
                score=score,
                reason=reason,
                model=question.model,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
                dollars=self._prices.of(reply),
            )
        )

    def _delay_s(self, failures: int) -> float:
        """Return a growing delay with a random part, so that not all callers come back at once."""
        longest = min(FIRST_DELAY_S * 2.0 ** (failures - 1), LONGEST_DELAY_S)
        return longest * self._jitter.uniform(0.5, 1.0)


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the loop in which all judges of this process are asked."""
    return event_loop_in_thread("judges")
