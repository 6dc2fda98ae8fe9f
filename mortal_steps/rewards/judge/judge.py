"""Scores many questions: each is asked once, again if that may help, and paid once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from time import monotonic

from mortal_steps.errors import JudgeError
from mortal_steps.rewards.judge.endpoint import Endpoint, RefusedError, Reply, UnavailableError
from mortal_steps.rewards.judge.ledger import Ledger, Payment
from mortal_steps.rewards.judge.question import (
    Grade,
    Question,
    UnusableAnswerError,
    read_grade,
)
from mortal_steps.rewards.kinds.judge import JudgeTerm
from mortal_steps.system.retry import backoff
from mortal_steps.system.threads import event_loop_in_thread

FIRST_DELAY_S = 0.5
"""Seconds before the second request for a question; doubled before each further one."""

LONGEST_DELAY_S = 20.0


class Judge:
    """Asks one endpoint what `term` says, for `call_s` seconds per call; for one thread."""

    def __init__(
        self, endpoint: Endpoint, ledger: Ledger, term: JudgeTerm, *, call_s: float
    ) -> None:
        self._endpoint = endpoint
        self._ledger = ledger
        self._term = term
        self._call_s = call_s
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
        until = monotonic() + self._call_s
        waiting, why_not = iter(questions.items()), list[str]()

        async def ask_what_waits() -> None:
            for key, question in waiting:
                why = await self._ask(key, question, until)
                if why is not None:
                    why_not.append(why)

        asking = [asyncio.ensure_future(ask_what_waits()) for _ in range(self._term.concurrency)]
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
                await self._pay_for_one(key, question, min(self._term.timeout, left))
                return None
            except UnusableAnswerError as error:
                unusable, problem = unusable + 1, f"{error} (answers: {unusable + 1})"
                if unusable == self._term.tries:
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
                dollars=self._dollars(reply),
            )
        )

    def _dollars(self, reply: Reply) -> float:
        prices = self._term.prices
        paid = reply.prompt_tokens * prices.input + reply.completion_tokens * prices.output
        return paid / 1e6


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the loop in which all judges of this process are asked."""
    return event_loop_in_thread("judges")
