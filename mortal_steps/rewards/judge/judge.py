"""Scores many questions: each is asked once, again if that may help, and paid once."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mortal_steps.errors import JudgeError, MortalError
from mortal_steps.rewards.judge.endpoint import Endpoint, RefusedError, Reply, UnavailableError
from mortal_steps.rewards.judge.ledger import Ledger, Payment
from mortal_steps.rewards.judge.limits import Limits, NoRoomError
from mortal_steps.rewards.judge.question import Question
from mortal_steps.rewards.judge.reading import Grade, UnusableAnswerError, read_grade

FIRST_DELAY_S = 0.5
"""Approximate seconds before the second request for a question; doubled before each further one."""

LONGEST_DELAY_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0

    def of(self, reply: Reply) -> float:
        """The price of an answer."""
        paid = reply.prompt_tokens * self.input + reply.completion_tokens * self.output
        return paid / 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long and how often a judge is asked before it counts as failed."""

    patience_s: float
    """Seconds for all questions of one call together."""
    request_s: float
    """Seconds for one request."""
    tries: int
    """Answers without a usable score that are paid for per question."""
    threads: int
    """Requests at a time."""


class _NoScore(Exception):
    """One question has no score; the message says why."""


class Judge:
    """Asks one endpoint; to be used by one thread at a time."""

    def __init__(
        self,
        endpoint: Endpoint,
        limits: Limits,
        ledger: Ledger,
        *,
        prices: Prices,
        patience: Patience,
    ) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._ledger = ledger
        self._prices = prices
        self._patience = patience
        self._jitter = random.Random()
        self._given_up: dict[str, str] = {}
        """Why a question is not asked any more: it had its tries, which cost something each."""
        self._stop = threading.Event()

    def grades(self, questions: Sequence[Question]) -> list[Grade]:
        """The grade of each question, in their order.

        What is answered stays answered: after a failure, another call asks the rest. Raises
        `JudgeError` if a question has no score in the end, and `ConfigError` at once for a wrong
        key, address or model.
        """
        self._ledger.refresh()
        self._stop.clear()
        asked = {question.digest(): question for question in questions}
        open_ones = [key for key in asked if self._ledger.find(key) is None]
        until = self._limits.clock.now() + self._patience.patience_s
        why_not: list[str] = []
        with ThreadPoolExecutor(self._patience.threads) as threads:
            waiting = [threads.submit(self._ask, key, asked[key], until) for key in open_ones]
            for each in waiting:
                try:
                    each.result()
                except _NoScore as error:
                    why_not.append(str(error))
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

    def _ask(self, key: str, question: Question, until: float) -> None:
        """Ask until the ledger has a score for the question."""
        if key in self._given_up:
            raise _NoScore(self._given_up[key])
        failures = unusable = 0
        problem = "there was no time left to ask it"
        while True:
            clock = self._limits.clock
            if self._stop.is_set() or clock.now() >= until:
                raise _NoScore(problem)
            try:
                self._pay_for_one(key, question, until)
                return
            except UnusableAnswerError as error:
                unusable, problem = unusable + 1, f"{error} (answers: {unusable + 1})"
                if unusable == self._patience.tries:
                    self._given_up[key] = problem
                    raise _NoScore(problem) from None
            except RefusedError as error:
                self._given_up[key] = str(error)
                raise _NoScore(str(error)) from None
            except NoRoomError as error:
                raise _NoScore(str(error)) from None
            except UnavailableError as error:
                failures, problem = failures + 1, f"{error} (requests: {failures + 1})"
                wait = max(self._delay_s(failures), error.retry_after_s)
                if clock.now() + wait >= until:
                    raise _NoScore(problem) from None
                clock.sleep(wait)
            except MortalError:  # nobody else's question will fare better
                self._stop.set()
                raise

    def _pay_for_one(self, key: str, question: Question, until: float) -> None:
        with self._limits.permit(question.tokens(), until) as taken:
            left = max(0.001, until - self._limits.clock.now())
            reply = self._endpoint.ask(question, min(self._patience.request_s, left))
            taken.amount = reply.prompt_tokens + reply.completion_tokens or taken.amount
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
        """A growing delay with a random part, so that many callers do not come back at the same
        time."""
        longest = min(FIRST_DELAY_S * 2.0 ** (failures - 1), LONGEST_DELAY_S)
        return longest * self._jitter.uniform(0.5, 1.0)
