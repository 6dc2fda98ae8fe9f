"""Rollouts of the problems that a selection asks for (`[selection]`), in one round or several.

    plan 0 | generate | reward | plan 1 | generate | reward | train (journal.json names all)

A plan is a function of the run's seed and of what earlier steps have shown; it is committed
(`batch.json`, `batch-1.json`) before it is sampled. A run that is killed anywhere in between plans
again, finds the plan and the shards that are there, and goes on.
"""

import asyncio
import dataclasses
import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from mortal_steps.errors import ConfigError, StoreError
from mortal_steps.orchestration.batch_sources.base import RolloutWorkers, StepBatch
from mortal_steps.orchestration.batch_sources.rollouts import Rollouts, drop
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.runs.logs import SELECTIONS
from mortal_steps.schedule import derive_seed, problem_indices
from mortal_steps.scores import reward_weights, weighted_sum
from mortal_steps.selection.draw import Ask, Draw, Scores
from mortal_steps.selection.history import History
from mortal_steps.selection.record import Selected, selected
from mortal_steps.selection.table import ALL
from mortal_steps.store.records import step_file
from mortal_steps.system.threads import in_thread
from mortal_steps.types import BatchRef, Problem, RewardedShard, RewardRef, WeightsRef

RECORD = TypeAdapter(Selected)


def own_rollouts(*, session: Session, workers: RolloutWorkers) -> Rollouts:
    """Return what supplies a run that samples its own rollouts."""
    selects = session.run.config.selection.type != ALL
    return (Selecting if selects else Rollouts)(session=session, workers=workers)


@dataclass(kw_only=True)
class _Step:
    """What a step has asked for so far, and what came of it."""

    asks: list[Ask] = field(default_factory=list)
    scores: list[Scores] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """The shard of each ask, among all of the step, and the group in it."""
    shards: list[RewardRef] = field(default_factory=list)
    num_rounds: int = 0


class Selecting(Rollouts):
    """Samples what the run's selection asks for, and trains on the groups that it keeps."""

    def __init__(self, *, session: Session, workers: RolloutWorkers) -> None:
        super().__init__(session=session, workers=workers)
        config = session.run.config
        self._config = config
        self._column: str | None = getattr(config.selection, "column", None)
        self._history = History(self._value_of)
        self._positions: dict[int, asyncio.Future[int]] = {}
        """Of the stream of rows after a step, once that is known."""
        self._begins_at = 0
        """The position at which the first step of this process begins."""

    def begin(self, step: int, published: Iterable[WeightsRef]) -> None:
        """Read what earlier steps have selected. Raises `StoreError` for a log that lacks some."""
        super().begin(step, published)
        log = self.session.run.logs.read(SELECTIONS)
        records = {row.pop("step") - 1: RECORD.validate_python(row) for row in log}
        first = self._first_known(records)
        self._history.begin_at(first)
        for number in range(first, step):
            if number not in records:
                raise StoreError(
                    f"{self.session.store.path(SELECTIONS)} lacks the line of step {number + 1}, "
                    "which decides what later steps sample; put the file back from a copy, or "
                    "begin a new run"
                )
            self._history.add(number, records[number])
        behind = records[step - 1].position if step > first else None
        # Where nothing is recorded, as if all rows had been taken.
        self._begins_at = step * self._config.training.batch_size if behind is None else behind
        self._history.bring_to(max(first, step - self._config.rollout.staleness))

    def _first_known(self, records: Mapping[int, Selected]) -> int:
        """Return the first step whose record has to be there. A fork of other problems or rewards
        begins with no records, and a fork of that one has those since."""
        begun = self.session.run.info.first_step
        earliest = min(records, default=begun)
        if earliest >= begun:
            return begun
        nothing_was_known = records[earliest].best is None
        return earliest if nothing_was_known else max(0, earliest - 1)

    async def roll_out(self, step: int, weights: WeightsRef) -> StepBatch:
        """Sample the step's rounds; see `Rollouts`."""
        known = self._positions[step] = asyncio.get_running_loop().create_future()
        before = self._positions.pop(step - 1, None)
        try:
            position = self._begins_at if before is None else await asyncio.shield(before)
            draw = await in_thread(functools.partial(self._beginning, step, position))
            return await self._select(draw, known, weights)
        finally:
            if not known.done():
                known.cancel()

    async def _select(
        self, draw: Draw, known: asyncio.Future[int], weights: WeightsRef
    ) -> StepBatch:
        selection = self._config.selection
        rounds, done, problems = selection.rounds(draw), _Step(), None
        try:
            asked = next(rounds)
            while True:
                if selection.one_round and not known.done():
                    known.set_result(draw.position)
                batch, answer = await self._sample(draw, done, asked, weights)
                problems = problems or batch
                asked = rounds.send(answer)
        except StopIteration as end:
            kept = end.value
        self._check_kept(kept, done, draw)
        record = selected(
            draw.position, done.num_rounds, done.asks, done.scores, kept, best=draw.best
        )
        self._history.add(draw.step, record)
        if not known.done():
            known.set_result(draw.position)
        assert problems is not None
        return StepBatch(problems, _batch(done, record))

    async def _sample(
        self, draw: Draw, done: _Step, asked: Sequence[Ask], weights: WeightsRef
    ) -> tuple[BatchRef, Sequence[Scores]]:
        """Sample and score a round, and add it to what is done. Returns the rewards of each ask."""
        self._check_asked(asked, done, draw.step)
        asked = await in_thread(functools.partial(self._planned, draw.step, done, asked))
        drawing = asyncio.create_task(
            self.session.draw(
                draw.step, done.num_rounds, [ask.row for ask in asked], asked[0].count
            )
        )
        try:
            async with self.scoring(drawing, weights) as scoring:
                batch, shards = await drawing, await scoring
        finally:
            await drop([drawing])
        groups = await in_thread(functools.partial(self._rewards_of, shards))
        first = len(done.shards)
        done.places += [(first + shard, group) for shard, group, _ in groups]
        answer = [scores for _, _, scores in groups]
        done.shards += shards
        done.asks += asked
        done.scores += answer
        done.num_rounds += 1
        return batch, answer

    def _planned(self, step: int, done: _Step, asked: Sequence[Ask]) -> Sequence[Ask]:
        """Return the asks with the rows of a plan that was committed before a kill, perhaps on
        another machine, whose mathematics may round otherwise."""
        file = step_file("get_batch", step, done.num_rounds)
        found = self.session.store.find_whole(file, list[Problem], f"step {step} is planned again")
        if found is None or len(found[1]) != len(asked):
            return asked
        if all(
            problem.id == self.session.problems[ask.row].id
            for problem, ask in zip(found[1], asked, strict=True)
        ):
            return asked
        rows = [self._row_of[problem.id] for problem in found[1]]
        before = [dataclasses.replace(ask, row=row) for ask, row in zip(asked, rows, strict=True)]
        return before if all(_continues(ask, done) for ask in before) else asked

    @functools.cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {problem.id: row for row, problem in enumerate(self.session.problems)}

    def _rewards_of(self, shards: Sequence[RewardRef]) -> list[tuple[int, int, Scores]]:
        """Return shard, group and rewards of each group, in the order of the problems."""
        weights, found = reward_weights(self._config.rewards), []
        for number, shard in enumerate(shards):
            groups = self.session.store.read_record(shard.file, RewardedShard).rewards
            for group, scores in enumerate(groups):
                rewards = tuple(weighted_sum(each, weights) for each in scores)
                found.append((number, group, Scores(rewards)))
        return found

    def _beginning(self, step: int, position: int) -> Draw:
        config, problems = self._config, self.session.problems
        self._history.bring_to(max(self._history.step, step - config.rollout.staleness))
        history, size = self._history, config.training.batch_size

        def row_at(position: int) -> int:
            [row] = problem_indices(
                len(problems),
                batch_size=1,
                step=position,
                seed=config.seed,
                shuffle=config.data.shuffle,
            )
            return row

        return Draw(
            step=step,
            batch_size=size,
            num_generations=config.training.num_generations,
            multiple=next(n for n in range(1, size + 1) if config.training.divides(n)),
            position=position,
            row_at=row_at,
            value_of=self._value_of,
            seen=history.seen,
            by_value=history.by_value,
            share=history.share,
            best=history.high,
            random=random.Random(derive_seed("selection", config.seed, step)),
            options=config.selection.model_extra or {},
        )

    def _value_of(self, row: int) -> str:
        if self._column is None:
            return ""
        return str(self.session.problems[row].columns.get(self._column))

    def _check_asked(self, asked: Sequence[Ask], done: _Step, step: int) -> None:
        """Raise `ConfigError` for a round that a selection of a user's own must not ask for."""
        rows, continued = len(self.session.problems), [ask.goes_on for ask in done.asks]
        wrong = ""
        if not asked or len({ask.count for ask in asked}) != 1:
            wrong = "asks for nothing, or for groups of several sizes, in a round"
        elif not all(0 <= ask.row < rows and ask.count > 0 for ask in asked):
            wrong = f"asks for a row that is none of {rows}, or for no completion of one"
        elif not all(_continues(ask, done) for ask in asked):
            wrong = "continues a group of another row, or one that is not there"
        elif len(more := [n for n in (*continued, *(a.goes_on for a in asked)) if n is not None]):
            wrong = "continues a group twice" if len(set(more)) != len(more) else ""
        if wrong:
            raise ConfigError(
                f"selection.type = {self._config.selection.type!r} {wrong}: step {step}"
            )

    def _check_kept(self, kept: Any, done: _Step, draw: Draw) -> None:
        """Raise `ConfigError` for what a selection of a user's own must not keep."""
        continued = {ask.goes_on for ask in done.asks}
        whole = {number for number in range(len(done.asks)) if number not in continued}
        given = list(kept) if isinstance(kept, Iterable) else []
        fits = 0 < len(given) <= draw.batch_size and len(given) % draw.multiple == 0
        if not (fits and len(set(given)) == len(given) and set(given) <= whole):
            raise ConfigError(
                f"selection.type = {self._config.selection.type!r} returns {kept!r} after "
                f"{len(done.asks)} asks in step {draw.step}; return numbers of asks, each once, of "
                f"a continued group the last one: a multiple of {draw.multiple} of them, and at "
                f"most {draw.batch_size}"
            )


def _continues(ask: Ask, done: _Step) -> bool:
    """Whether an ask begins a group, or goes on with one of the same row."""
    if ask.goes_on is None:
        return True
    return 0 <= ask.goes_on < len(done.asks) and done.asks[ask.goes_on].row == ask.row


def _batch(done: _Step, record: Selected) -> ScoredRollouts:
    chosen = set(record.kept)
    kept = [
        tuple(place for number in chain for place in done.places[number])
        for _, chain in record.groups()
        if chain[-1] in chosen
    ]
    return ScoredRollouts(rewards=done.shards, kept=kept, cursor=record.position, selected=record)
