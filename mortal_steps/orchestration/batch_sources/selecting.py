"""Rollouts of the problems that a selection asks for (`[selection]`), in one round or several.

    plan 0 | generate | reward | plan 1 | generate | reward | selection/t.json | train t

A plan is a function of the run's seed and of what earlier steps have shown; it is committed
(`batch.json`, `batch-1.json`) before it is sampled. A run that is killed anywhere in between plans
again, finds the plan and the shards that are there, and goes on.
"""

import asyncio
import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.batch_sources.base import RolloutWorkers, StepBatch
from mortal_steps.orchestration.batch_sources.rollouts import Rollouts, drop
from mortal_steps.orchestration.session import Session, step_file
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.schedule import derive_seed, problem_indices
from mortal_steps.scores import reward_weights, weighted_sum
from mortal_steps.selection.draw import Ask, Draw, Scores
from mortal_steps.selection.history import (
    History,
    Selected,
    read_selected,
    selected,
    selected_file,
    verdicts,
)
from mortal_steps.selection.table import ALL
from mortal_steps.system.threads import in_thread
from mortal_steps.types import BatchRef, Problem, RewardedShard, RewardRef, WeightsRef


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
        self._history = History(
            session.store, self._value_of, first_step=session.run.info.first_step
        )
        self._positions: dict[int, asyncio.Future[int]] = {}
        """Of the stream of rows after a step, once that is known."""

    async def roll_out(self, step: int, weights: WeightsRef) -> StepBatch:
        """Sample the step's rounds; see `Rollouts`."""
        known = self._positions[step] = asyncio.get_running_loop().create_future()
        self._positions.pop(step - 2, None)
        try:
            before = self._positions.get(step - 1)
            position = await (self._recorded_position(step) if before is None else before)
            draw = await in_thread(functools.partial(self._beginning, step, position))
            return await self._select(draw, weights)
        finally:
            if not known.done():
                known.cancel()

    async def _select(self, draw: Draw, weights: WeightsRef) -> StepBatch:
        rounds, done, problems = self._config.selection.rounds(draw), _Step(), None
        one_round = self._config.selection.one_round
        try:
            asked = next(rounds)
            while True:
                if one_round:
                    self._positions[draw.step].set_result(draw.position)
                batch, answer = await self._sample(draw.step, done, asked, weights)
                problems = problems or batch
                asked = rounds.send(answer)
        except StopIteration as end:
            kept = list(end.value)
        _check_kept(kept, done, draw, self._config.selection.type)
        if not one_round:
            self._positions[draw.step].set_result(draw.position)
        record = selected(draw.step, draw.position, done.num_rounds, done.asks, done.scores, kept)
        file = selected_file(draw.step)
        await in_thread(functools.partial(self.session.store.write_record, file, record, Selected))
        assert problems is not None
        return StepBatch(problems, self._batch(done, record))

    def _batch(self, done: _Step, record: Selected) -> ScoredRollouts:
        chosen = set(record.kept)
        kept = [
            tuple(place for number in chain for place in done.places[number])
            for _, chain in record.groups()
            if chain[-1] in chosen
        ]
        return ScoredRollouts(
            rewards=done.shards,
            kept=kept,
            cursor=record.position,
            shares={**verdicts(record, self._history.high), "rounds": float(done.num_rounds)},
        )

    async def _sample(
        self, step: int, done: _Step, asked: Sequence[Ask], weights: WeightsRef
    ) -> tuple[BatchRef, Sequence[Scores]]:
        """Sample and score a round, and add it to what is done. Returns the rewards of each ask."""
        drawing = asyncio.create_task(self._plan(step, done, asked))
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

    async def _plan(self, step: int, done: _Step, asked: Sequence[Ask]) -> BatchRef:
        rows = [ask.row for ask in asked]
        found = await in_thread(functools.partial(self._planned, step, done.num_rounds))
        if len({ask.count for ask in asked}) != 1:
            raise ConfigError(
                f"selection.type = {self._config.selection.type!r} asks for groups of several "
                f"sizes in a round of step {step}; ask for one size in each round"
            )
        return await self.session.draw(step, done.num_rounds, found or rows, asked[0].count)

    def _planned(self, step: int, number: int) -> Sequence[int] | None:
        """Return the rows of a round that was planned before a kill, perhaps on another machine,
        whose mathematics may round otherwise."""
        file = step_file("get_batch", step, number)
        found = self.session.store.find_whole(file, list[Problem], f"step {step} is planned again")
        if found is None:
            return None
        return [self._row_of[problem.id] for problem in found[1]]

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
        self._history.bring_to(max(0, step - config.rollout.staleness))
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
            random=random.Random(derive_seed("selection", config.seed, step)),
            options=config.selection.model_extra or {},
        )

    async def _recorded_position(self, step: int) -> int:
        """Return where the stream of rows stands before the first step that this process takes."""
        first = self.session.run.info.first_step
        if step == first and not self.session.store.path(selected_file(step - 1)).exists():
            return step * self._config.training.batch_size  # as if all had been taken
        record = await in_thread(functools.partial(read_selected, self.session.store, step - 1))
        return record.position

    def _value_of(self, row: int) -> str:
        if self._column is None:
            return ""
        return str(self.session.problems[row].columns.get(self._column))


def _check_kept(kept: Sequence[int], done: _Step, draw: Draw, name: str) -> None:
    """Raise `ConfigError` for what a selection of a user's own must not keep."""
    count = len(kept)
    fits = 0 < count <= draw.batch_size and count % draw.multiple == 0
    if not (fits and len(set(kept)) == count and set(kept) <= set(range(len(done.asks)))):
        raise ConfigError(
            f"selection.type = {name!r} keeps the asks {list(kept)} of {len(done.asks)} in step "
            f"{draw.step}; return numbers of asks, each once: a multiple of {draw.multiple} of "
            f"them, and at most {draw.batch_size}"
        )
