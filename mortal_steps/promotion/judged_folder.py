"""What is on the disk of the judgement of a model, and for which request it was made.

judged/day.json                the day that chat templates write into prompts, of all judgements
judged/<key>/
  generations-<shard>.parquet  rewards-<shard>.parquet     as in a run directory
  request.json                 the request that the shards are scored for
  judgement.json               the mean scores
  data/chat.json               of a model with another chat template than the run's, where there are
                               tools: how its chats are rendered and read
"""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mortal_steps.errors import CorruptFileError
from mortal_steps.orchestration.trials.scoring import discard_masked
from mortal_steps.plan.held_out import HeldOutSets
from mortal_steps.report.held_out import Scores, committed_shards, scores_in
from mortal_steps.report.units import counted
from mortal_steps.store import RunStore
from mortal_steps.store.files import writing
from mortal_steps.types import RewardFailure

logger = logging.getLogger(__name__)

T = TypeVar("T")

FOLDER = "judged"
STEP = 0
"""The step from which seeds are derived; it is the same for all models, whatever step they are
from."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Judgement:
    """The scores of a model."""

    num_problems: int
    """Of the run's held-out sets; those of harnesses are not counted."""
    metrics: Mapping[str, float]
    """As in `Evaluation`."""


class JudgedFolder:
    """The folder of one key. What is written there needs the lock of all of them."""

    def __init__(self, store: RunStore, key: str, held_out: HeldOutSets, request: str) -> None:
        self.path = f"{FOLDER}/{key}"
        self._store, self._held_out, self._request = store, held_out, request
        self._file, self._request_file = (
            f"{self.path}/{name}.json" for name in ("judgement", "request")
        )

    def find(self) -> Judgement | None:
        """Return the judgement, if the scores of all problems are there, none of them masked unless
        for this request: another one asks again for what failed. What is damaged is logged, and
        counts as none."""
        found = self._find(self._file, Judgement)
        try:
            if found is None or (not self._is_own() and self.failures()):
                return None
            return found if self.scores() is not None else None
        except CorruptFileError as error:
            logger.warning("judged again: %s", error)
            return None

    def begin(self) -> None:
        """Prepare to score for this request: what failed for another one is discarded. The record
        of the request is written last: a kill before that leaves the rest to be discarded."""
        self._store.remove_leftovers(self.path)
        if self._is_own():
            return
        file = self._store.path(self._file)
        with writing(file):
            file.unlink(missing_ok=True)
        self._tell_what_is_scored_again()
        discard_masked(self._store, self.path)
        self._store.write_record(self._request_file, self._request, str)

    def keep(self, judgement: Judgement) -> None:
        self._store.write_record(self._file, judgement, Judgement)

    def forget(self) -> None:
        """Let this request ask again for what failed for it."""
        file = self._store.path(self._request_file)
        with writing(file):
            file.unlink(missing_ok=True)

    def scores(self) -> Scores | None:
        """Return what each problem scored; None unless all of it is there. Raises
        `CorruptFileError`."""
        return scores_in(self._store, self.path, self._held_out, STEP)

    def failures(self) -> Sequence[RewardFailure]:
        """Return why completions are masked. Raises `CorruptFileError`."""
        shards = committed_shards(self._store, self.path) or ()
        return [failure for shard in shards for failure in shard.failures]

    def _tell_what_is_scored_again(self) -> None:
        with contextlib.suppress(CorruptFileError):  # of which the scoring tells
            if failures := self.failures():
                masked, first = sum(each.num_completions for each in failures), failures[0]
                logger.warning(
                    "%s of an earlier comparison could not be scored (%s failed: %s) and will be "
                    "scored again, now and whenever it fails",
                    *(counted(masked, "completion"), first.function, first.message),
                )

    def _is_own(self) -> bool:
        return self._find(self._request_file, str) == self._request

    def _find(self, path: str, kind: type[T]) -> T | None:
        """Return a record, if there is one; a damaged one is logged and counts as none."""
        found = self._store.find_whole(path, kind, "judged again")
        return found[1] if found else None
