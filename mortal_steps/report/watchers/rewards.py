"""What happens to the rewards: they fall, they are all equal, they are missing or masked, or the
policy does worse on the held-out problems."""

from __future__ import annotations

import math
from collections import deque

from mortal_steps.report.units import number
from mortal_steps.report.watchers.base import Episodes, Found, Seen, Watched
from mortal_steps.runs.notices import Level

STANDARD_ERRORS = 6.0
"""By which chance alone never moves a mean away from the best of thousands."""


class RewardCollapsed:
    """Compares the moving mean of the reward with its best; see `[alerts] reward_drop`."""

    event = "mortal.reward.collapsed"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        alerts = watched.alerts
        self._drop = alerts.reward_drop
        self._window = alerts.reward_window
        self._patience = alerts.reward_drop_steps
        self._recent: deque[float] = deque(maxlen=alerts.reward_window)
        self._noise = Noise()
        self._episodes = Episodes(alerts.quiet_steps)
        self._best = -math.inf
        self._best_step = 0
        """After which step the mean was best."""
        self._low = 0
        """Steps in a row that the mean has been low."""

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`. Steps in which nothing was scored do not count."""
        if seen.metrics is None or seen.metrics["reward"] is None:
            return None
        self._recent.append(seen.metrics["reward"])
        self._noise.add(seen.metrics["reward"])
        if len(self._recent) < self._window:
            return None
        mean = math.fsum(self._recent) / self._window
        if mean >= self._best:
            self._best, self._best_step = mean, seen.step
        by_chance = STANDARD_ERRORS * self._noise.deviation / math.sqrt(self._window)
        low = self._best - mean > max(self._drop * abs(self._best), by_chance)
        self._low = self._low + 1 if low else 0
        if not self._episodes.begins(seen.step, holds=self._low >= self._patience):
            return None
        return Found(
            value=mean,
            text=f"the mean training reward of the last {self._window} steps is {mean:.3f}; it "
            f"was {self._best:.3f} after step {self._best_step}",
            advice="read what the policy writes now (`mortal samples {run}`); to go on "
            f"from before, `mortal fork {{run}} --at-step N` with a checkpoint up to step "
            f"{self._best_step}",
        )


class Noise:
    """How far apart the rewards of two steps are by chance: a trend hardly adds to it."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._squares = 0.0
        self._count = 0

    def add(self, reward: float) -> None:
        """The reward of the next step."""
        if self._last is not None:
            self._squares += (reward - self._last) ** 2
            self._count += 1
        self._last = reward

    @property
    def deviation(self) -> float:
        """Standard deviation of a step's reward about its expectation."""
        return math.sqrt(self._squares / (2 * self._count)) if self._count else 0.0


class EvaluationRegressed:
    """Compares an evaluation's reward with the best one; see `[alerts] evaluation_drop`."""

    event = "mortal.evaluation.regressed"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._drop = watched.alerts.evaluation_drop
        self._episodes = Episodes(watched.alerts.quiet_steps)
        self._best: tuple[float, int] | None = None
        """The best reward, and after which step that was."""

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`. Evaluations in which nothing was scored do not count."""
        if seen.evaluation is None or "reward" not in seen.evaluation:
            return None
        reward: float = seen.evaluation["reward"]
        if self._best is None or reward >= self._best[0]:
            self._best = (reward, seen.step)
        best, best_step = self._best
        low = best - reward > self._drop * abs(best)
        if not self._episodes.begins(seen.step, holds=low):
            return None
        return Found(
            value=reward,
            text=f"the evaluation after step {seen.step} has reward {reward:.3f}; the best one, "
            f"after step {best_step}, had {best:.3f}",
            advice="compare it with the training reward (`mortal show {run}`): if that still "
            "rises, the policy learns what the held-out problems do not ask for",
        )


class RewardMasked:
    """Looks at the reward function that failed on most of a step; see `[alerts] masked_share`."""

    event = "mortal.reward.masked"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._share = watched.alerts.masked_share
        self._functions = watched.functions
        self._num_completions = watched.num_completions
        self._episodes = Episodes(watched.alerts.quiet_steps)

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.metrics is None or not self._functions:
            return None
        masked = {name: seen.metrics.get(f"rewards/{name}/masked", 0) for name in self._functions}
        worst = max(masked, key=lambda name: masked[name])
        share = masked[worst] / self._num_completions
        if not self._episodes.begins(seen.step, holds=share > self._share):
            return None
        return Found(
            value=share,
            text=f"{100 * share:.0f} % of the completions of step {seen.step} are left out, as "
            f"{worst} failed on them",
            advice="`mortal show {run}` names the problems and the errors; if a service that "
            "the function needs is down, `mortal stop {run}` until it is back",
        )


FLAT_STEPS = 10
"""Steps in a row without any difference after which it is reported."""
EQUAL = "frac_reward_zero_std"
"""TRL's name for the share of groups whose rewards are all equal."""


class RewardFlat:
    """Looks for `FLAT_STEPS` steps in a row from which nothing can be learned."""

    event = "mortal.reward.flat"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._episodes = Episodes(watched.alerts.quiet_steps)
        self._last: deque[float] = deque(maxlen=FLAT_STEPS)
        """Rewards of the last steps, as long as they are flat."""

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.metrics is None:
            return None
        reward = seen.metrics["reward"]
        if reward is None or seen.metrics.get(EQUAL) != 1.0:
            self._last.clear()
        else:
            self._last.append(reward)
        if not self._episodes.begins(seen.step, holds=len(self._last) == FLAT_STEPS):
            return None
        found = sorted({number(reward) for reward in self._last})
        between = found[0] if len(found) == 1 else f"between {found[0]} and {found[-1]}"
        return Found(
            value=reward,
            text=f"nothing to learn from: the rewards of every group of steps "
            f"{seen.step - FLAT_STEPS + 1} to {seen.step} are equal (reward {between}), so all "
            "advantages are 0",
            advice="if every completion fails, take easier problems or a reward that tells bad "
            "from worse; if every one succeeds, take harder problems; else raise "
            "rollout.temperature or training.num_generations",
        )


MISSING_STEPS = 3
"""Steps in a row without any reward after which it is reported."""


class RewardMissing:
    """Looks for `MISSING_STEPS` steps in a row in which no completion was scored."""

    event = "mortal.reward.missing"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._episodes = Episodes(watched.alerts.quiet_steps)
        self._steps = 0

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.metrics is None or "num_rows" in seen.metrics:  # rows have no rewards
            return None
        self._steps = self._steps + 1 if seen.metrics["reward"] is None else 0
        if not self._episodes.begins(seen.step, holds=self._steps >= MISSING_STEPS):
            return None
        return Found(
            value=0.0,
            text=f"nothing to learn from: no completion of steps {seen.step - self._steps + 1} to "
            f"{seen.step} has a reward. Every reward function returned None for it, or failed and "
            "was masked",
            advice="read the completions (`mortal samples {run}`) and call the functions "
            "with them (`mortal test-reward`)",
        )
