"""Checkpoints while a run trains: each is begun after a step and written beside the steps that
follow.

    train 4 | begin 5 | train 5 | train 6 | train 7 |
              write ............. whole             | counted: the run stands at step 7

The manifest's step stays where it is until the checkpoint is whole. A process that continues the
run before that starts from a step at which the checkpoint is still due; it passes through the steps
since then, which have their records, and comes to the checkpoint again.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from mortal_steps.errors import TransientError
from mortal_steps.orchestration.session import Session
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.logs import LogMark
from mortal_steps.system.threads import in_thread

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """A checkpoint that is due but does not count yet."""

    step: int
    score: float | None
    """None: it is not compared with others."""
    best: float | None
    """The score of the checkpoint, if it is the best so far."""


class Saves:
    """The checkpoints of one run, and the step at which the run stands because of them."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        self._session = session
        self._run = session.run
        self._recorder = recorder
        self._pending: Pending | None = None
        self._done: tuple[int, Mapping[str, LogMark]] | None = None
        """The last step that ended, and how long the logs were then."""
        self._said = False

    @property
    def is_pending(self) -> bool:
        """Whether a checkpoint may still be being written."""
        return self._pending is not None

    async def end_step(self, done: int, say: Callable[[str], None]) -> None:
        """Note that a step has ended: begin its checkpoint if one is due, as after the last, and
        advance the manifest unless a checkpoint is being written."""
        due = self._session.schedule.checkpoints(done) or done == self._run.num_steps
        if self._pending is not None and (due or not await self._is_saving()):
            # Where the next one begins at once, the manifest would not advance at all.
            await self.settle()
        if due:
            await self._begin(done, say)
        self._done = done, self._run.logs.marks()
        await self._advance()

    async def settle(self) -> None:
        """Wait until the checkpoint is valid and the manifest stands at the last step."""
        if self._pending is not None:
            await self._count()
            await self._advance()

    async def save_now(self, done: int) -> bool:
        """Save the state after `done` steps, unless a checkpoint has it; returns whether it was not
        saved before."""
        await self.settle()
        # Those of later steps date from before the run was set back.
        if done in {0, *(saved.step for saved in self._run.manifest.checkpoints)}:
            return False
        self._run.note_checkpoint(await self._session.checkpoint(done, best_score=None))
        return True

    async def _begin(self, done: int, say: Callable[[str], None]) -> None:
        score = self._run.score(done)
        best = score if self._run.is_best(score) else None
        self._pending = Pending(step=done, score=score, best=best)
        if not (self._may_begin(done) and await self._is_begun(done, say)):
            await self._count()

    def _may_begin(self, done: int) -> bool:
        """Return whether a checkpoint can be written beside a train step that follows."""
        config, last = self._session.run.config, self._run.num_steps
        can = config.compute.place.saves_beside
        return can and config.checkpoints.background and done < last

    async def _is_begun(self, done: int, say: Callable[[str], None]) -> bool:
        try:
            why = await self._session.begin_checkpoint(done)
        except TransientError as error:  # the stage is what is tried again
            logger.warning("checkpoint %d could not be begun beside training: %s", done, error)
            return False
        if why is not None and not self._said:
            self._said = True
            say(f"train steps wait for checkpoints: {why}")
        return why is None

    async def _is_saving(self) -> bool:
        assert self._pending is not None
        try:
            return await self._session.is_saving(self._pending.step)
        except TransientError as error:  # whoever takes the actor's place will tell
            logger.warning(
                "asking again whether checkpoint %d is written: %s", self._pending.step, error
            )
            return False

    async def _count(self) -> None:
        """Wait until the pending checkpoint is whole, and record it in the manifest."""
        pending = self._pending
        assert pending is not None
        saved = await self._session.checkpoint(pending.step, best_score=pending.best)
        self._recorder.timing(saved.timing)
        await in_thread(partial(self._run.note_checkpoint, saved, pending.score))
        self._pending = None

    async def _advance(self) -> None:
        if self._done is not None and self._pending is None:
            await self._run.advance(*self._done)
