"""Selections played without a run: what they ask for, answered by a test."""

import random
from collections.abc import Sequence

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.selection.draw import Ask, Draw, Scores
from mortal_steps.selection.record import Selected, selected

SIZE, GROUP, ROWS = 8, 16, 240
KINDS = ("easy", "half", "hard")


def kind_of(row: int) -> str:
    return KINDS[row % 3]


def selection(*, size=SIZE, group=GROUP, **options):
    return RunConfig.model_validate(
        {"selection": options, "training": {"batch_size": size, "num_generations": group}}
    ).selection


def draw(
    step=0,
    position=0,
    *,
    history=None,
    multiple=1,
    rows=ROWS,
    seed=0,
    size=SIZE,
    group=GROUP,
) -> Draw:
    return Draw(
        step=step,
        batch_size=size,
        num_generations=group,
        multiple=multiple,
        position=position,
        row_at=lambda at: (7 * at + 3) % rows if rows % 7 else at % rows,
        value_of=kind_of,
        seen=history.seen if history else {},
        by_value=history.by_value if history else {},
        share=history.share if history else 0.5,
        best=history.high if history else None,
        random=random.Random(f"{seed} {step}"),
        options={},
    )


def scores_of(ask: Ask, rates, dice, kind_of=kind_of) -> Scores:
    return Scores(tuple(float(dice.random() < rates[kind_of(ask.row)]) for _ in range(ask.count)))


def next_of(told, ask: Ask) -> Scores:
    return next(told)


def play(kind, beginning: Draw, answer) -> tuple[list[list[Ask]], list[Scores], Sequence[int]]:
    """Return the rounds, the scores of all asks, and what is kept."""
    rounds, scores = [], []
    going = kind.rounds(beginning)
    try:
        asked = next(going)
        while True:
            rounds.append(list(asked))
            told = [answer(ask) for ask in asked]
            scores += told
            asked = going.send(told)
    except StopIteration as end:
        return rounds, scores, list(end.value)


def learn(history, kind, beginning: Draw, answer) -> tuple[list[list[Ask]], Selected]:
    """Take a step with what is known, and learn from it; returns its rounds and its record."""
    rounds, scores, kept = play(kind, beginning, answer)
    asks = [ask for asked in rounds for ask in asked]
    position, best = beginning.position, beginning.best
    record = selected(position, len(rounds), asks, scores, kept, best=best)
    history.add(beginning.step, record)
    history.bring_to(beginning.step + 1)
    return rounds, record
