"""`AgentHandler`: what runs in a process of environments whose code asks the model itself."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Mapping

from mortal_steps.config import RewardTerm
from mortal_steps.environments.inside.judging import JudgingHandler
from mortal_steps.environments.inside.outages import Outages
from mortal_steps.environments.inside.returned import raised
from mortal_steps.environments.inside.streams import RandomStream
from mortal_steps.environments.kinds.base import AskingEnvironment
from mortal_steps.environments.messages import (
    AgentResult,
    Description,
    EnvironmentTools,
    EpisodeStart,
)
from mortal_steps.errors import MortalError
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.sandbox.executors import ExecutorSettings

CLIENTS = ("httpx", "httpx2", "openai")
"""Loggers that write a line for each request."""
logger = logging.getLogger(__name__)


class AgentHandler(JudgingHandler):
    """Holds the code that plays episodes, and in a cell plays one."""

    def __init__(
        self,
        *,
        environment: AskingEnvironment,
        terms: Mapping[str, RewardTerm],
        sandbox: ExecutorSettings | None = None,
        judge: JudgedRun | None = None,
    ) -> None:
        super().__init__(sandbox, judge)
        for name in CLIENTS:
            logging.getLogger(name).setLevel(logging.WARNING)
        with RandomStream(0).used():  # what a module draws is the same in every process
            self._agent = environment.load_agent()
        self._outages = Outages(environment.outages)

    def describe(self) -> Description:
        offered = EnvironmentTools(tools=[], reward=self._agent.reward)
        return Description(environments={"": offered})

    def run(self, *, start: EpisodeStart, base_url: str) -> AgentResult:
        """Play the episode to its end. Raises `MortalError` for what another attempt does not
        change, such as code that cannot be used at all, or a judge's wrong key."""
        with RandomStream(start.seed).used():
            try:
                result = self._agent.run(base_url=base_url, start=start)
                if inspect.isawaitable(result):
                    result = asyncio.run(_awaited(result))
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                if self._outages.has(error):
                    return AgentResult(outage=raised(error))
                if isinstance(error, MortalError):
                    raise
                logger.warning("the agent ended", exc_info=error)
                return AgentResult(failure=raised(error))
            finally:
                self.release()
        return result


async def _awaited(waiting: Awaitable[AgentResult]) -> AgentResult:
    return await waiting
