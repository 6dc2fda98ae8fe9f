"""When what went wrong in a cell is tried again: a fault so many times, an outage so long."""

from collections import Counter
from collections.abc import Iterator

from mortal_steps.environments.processes.faults import REMEDIES, Fault
from mortal_steps.system.retry import backoff, within

FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 10.0


class Attempts:
    """Those of one request, by the episode that was to blame; None: all of them.

    The loss of the process that all share is forgiven as often as `forgiven` says (by default
    `retries`, and once at least): as a rule, another episode ended it. What cannot be asked may be
    back later: an outage is tried again after a while, as often as `retries`, and as long as so
    many attempts may take that hang.
    """

    def __init__(self, retries: int, timeout_s: float, *, forgiven: int | None = None) -> None:
        self.made: Counter[int | None] = Counter()
        """Failed attempts of each episode."""
        self._faults: Counter[int | None] = Counter()
        self._forgiven = max(1, retries) if forgiven is None else forgiven
        self.num_shared = 0
        """Times that the process was lost of which all episodes are forks."""
        self._delays_s: dict[int | None, Iterator[float]] = {}
        self._retries, self._lasts_s = retries, retries * timeout_s

    def delay_after(self, fault: Fault) -> float | None:
        """Return the seconds until the next attempt; None after the last attempt."""
        blamed = fault.episode
        if fault.remedy == REMEDIES["shared"]:
            self.num_shared += 1
            if self.num_shared <= self._forgiven:
                return 0.0
        self.made[blamed] += 1
        if fault.remedy != REMEDIES["outage"]:
            self._faults[blamed] += 1
            return 0.0 if self._faults[blamed] <= self._retries else None
        if blamed not in self._delays_s:
            delays_s = backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
            self._delays_s[blamed] = within(delays_s, self._lasts_s)
        at_least = 0.0 if self.made[blamed] <= self._retries else None
        return next(self._delays_s[blamed], at_least)
