"""The problems of a run's steps: drawn when they are asked for, or while there is time before."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Sequence

from mortal_steps.data import get_batch
from mortal_steps.data.kept import open_problems
from mortal_steps.errors import MortalError
from mortal_steps.runs.run import Run
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)


class Draws:
    """Keeps what was drawn last. Any thread may ask."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._drawing = threading.Lock()
        self._last: tuple[int, Sequence[Problem]] = (-1, ())

    def ahead(self, step: int) -> None:
        """Draw for a later step; what keeps it from that is for `of` to raise."""
        try:
            self.of(step)
        except MortalError as error:
            logger.info("not drawn ahead of time: %s", error)

    def of(self, step: int) -> list[Problem]:
        """The problems of a step: a pure function of dataset, seed and step."""
        with self._drawing:
            if self._last[0] != step:
                config = self._run.config
                drawn = get_batch(
                    self._problems,
                    config.data,
                    batch_size=config.training.batch_size,
                    step=step,
                    seed=config.seed,
                )
                self._last = step, drawn
            return list(self._last[1])

    @functools.cached_property
    def _problems(self) -> Sequence[Problem]:
        """The training problems, as committed when the run was created."""
        return open_problems(self._run.store, self._run.info.train_problems)
