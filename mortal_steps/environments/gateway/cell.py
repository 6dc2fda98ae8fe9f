"""The process in which an episode's code runs, and is run again when it is lost."""

from mortal_steps.environments.gateway.server import EpisodeServer
from mortal_steps.environments.gateway.session import EpisodeSession
from mortal_steps.environments.messages import AGENT, AgentResult
from mortal_steps.environments.processes.cell import Cell, Failed
from mortal_steps.environments.processes.faults import REMEDIES, Fault, fault_of
from mortal_steps.errors import WorkerError
from mortal_steps.hosts.base import Fork, HostLostError

PERMANENT = (REMEDIES["differs"], REMEDIES["in_turn"], REMEDIES["unusable"])
"""Remedies of faults that another attempt would have, too."""
NO_LIMIT_S = 1e7
"""Seconds for an episode as a whole, which waits for the engine; the code's own time has a limit.
"""


class AgentCell(Cell):
    """A cell that runs the code of one episode; see `Cell` for the errors."""

    def play(self, session: EpisodeSession, server: EpisodeServer) -> AgentResult | Failed:
        """Return what came of the episode, at the end of the code, or of the last attempt."""
        (episode,) = self._starts
        attempts = self._attempts()
        try:
            while episode not in self._failed:
                try:
                    return self._played(self._running().fork, episode, session, server)
                except Fault as fault:
                    session.rest()
                    if fault.remedy in PERMANENT:
                        is_difference = fault.remedy == REMEDIES["differs"]
                        self._fail(fault, attempts.made[episode] + 1, is_difference=is_difference)
                    else:
                        self._begin_again(fault, attempts)
            return self._failed[episode]
        finally:
            self.close()

    def _played(
        self, fork: Fork, episode: int, session: EpisodeSession, server: EpisodeServer
    ) -> AgentResult:
        session.stop_playing = fork.kill
        session.begin()
        try:
            with server.address_of(session, fork.reach) as base_url:
                result: AgentResult = fork.call(
                    "run",
                    returns=AgentResult,
                    timeout_s=NO_LIMIT_S,
                    start=self._starts[episode],
                    base_url=base_url,
                )
        except HostLostError as lost:
            raise session.fault or self._fault_of(episode, session, lost) from None
        except WorkerError as error:
            raise Fault(episode, AGENT, str(error), REMEDIES["raised"]) from None
        if session.fault is not None:
            raise session.fault
        if result.outage is not None:
            raise Fault(episode, AGENT, result.outage, REMEDIES["outage"])
        if result.failure is not None and not session.refused:
            raise Fault(episode, AGENT, result.failure, REMEDIES["raised"])
        session.check_heard()
        session.check_same()
        return result

    def _fault_of(self, episode: int, session: EpisodeSession, lost: HostLostError) -> Fault:
        limit_s = self._config.timeout_s
        if not session.is_late:
            return fault_of(episode, AGENT, lost, limit_s)
        how = f"neither asked nor ended within {limit_s:g} s"
        return Fault(episode, AGENT, how, REMEDIES["timeout"])
