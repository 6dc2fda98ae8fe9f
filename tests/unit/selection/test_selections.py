"""Selections as pure generators, and what a run remembers of its problems."""

import random
import tomllib
from functools import partial

import pytest

from mortal_steps.selection.draw import Ask, Scores
from mortal_steps.selection.history import History
from mortal_steps.selection.record import Selected, selected
from tests.support.docs_examples import settings, write_modules
from tests.support.selections import (
    GROUP,
    KINDS,
    ROWS,
    SIZE,
    draw,
    kind_of,
    learn,
    next_of,
    play,
    scores_of,
    selection,
)

USELESS = {"easy": 1.0, "half": 0.5, "hard": 0.0}


@pytest.mark.parametrize("name", ["curriculum", "screen", "dynamic"])
@pytest.mark.parametrize("multiple", [1, 2, 8])
def test_asked_again_with_the_same_scores_it_asks_for_the_same(name, multiple):
    """And returns whole groups, each once, as many as can be trained on."""
    dice, kind = random.Random(1), selection(type=name)
    for case in range(300):
        rates = {value: dice.choice([0.0, 0.02, 0.5, 0.98, 1.0]) for value in KINDS}
        by_chance = partial(scores_of, rates=rates, dice=random.Random(case))
        first = play(kind, draw(case, multiple=multiple), by_chance)
        told = iter(first[1])
        assert play(kind, draw(case, multiple=multiple), partial(next_of, told)) == first
        rounds, _, kept = first
        asks = [ask for asked in rounds for ask in asked]
        assert 0 < len(kept) <= SIZE and len(kept) % multiple == 0 and len(set(kept)) == len(kept)
        for number in kept:
            parts, at = 0, number
            while at is not None:
                parts, at = parts + asks[at].count, asks[at].goes_on
            assert parts == GROUP


@pytest.mark.parametrize("rates", [dict.fromkeys(KINDS, rate) for rate in (0.0, 1.0)])
@pytest.mark.parametrize("name", ["curriculum", "screen", "dynamic"])
def test_a_dataset_that_is_all_solved_or_unsolved_trains_on(name, rates):
    rounds, _, kept = play(selection(type=name), draw(), lambda ask: scores_of(ask, rates, random))
    assert kept and len(rounds) <= 9


def test_dynamic_goes_on_until_the_batch_differs_and_keeps_the_first_that_do():
    dice = random.Random(0)
    rounds, scores, kept = play(
        selection(type="dynamic"), draw(), lambda ask: scores_of(ask, USELESS, dice)
    )
    differing = [number for number, each in enumerate(scores) if each.differ]
    assert len(rounds) > 1 and all(len(asked) <= SIZE for asked in rounds)
    assert kept == differing[:SIZE]


def test_dynamic_fills_what_is_short_with_groups_that_do_not_differ():
    one = iter([1.0, *[0.0] * 10_000])
    rounds, scores, kept = play(
        selection(type="dynamic", max_rounds=2),
        draw(),
        lambda ask: Scores((next(one), *[0.0] * (GROUP - 1))),
    )
    assert len(rounds) == 2 and scores[0].differ
    assert kept == list(range(SIZE))


def test_the_selection_of_the_page_keeps_the_hardest_groups_that_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_modules("selection.md", "Your own", tmp_path)
    options = tomllib.loads(settings("selection.md", "Your own"))["selection"]
    dice = random.Random(0)
    by_chance = partial(scores_of, rates={"easy": 1.0, "half": 0.9, "hard": 0.2}, dice=dice)
    rounds, scores, kept = play(selection(**options), draw(), by_chance)
    assert [len(asked) for asked in rounds] == [2 * SIZE] and len(kept) == SIZE
    left_out = set(range(2 * SIZE)) - set(kept)
    hardest = max(sum(scores[number].known) for number in kept if scores[number].differ)
    assert all(
        not scores[number].differ or sum(scores[number].known) >= hardest for number in left_out
    )


def test_screen_samples_no_more_than_an_ordinary_step():
    dice, kind = random.Random(0), selection(type="screen", first=4)
    for step in range(50):
        rounds, scores, kept = play(kind, draw(step), lambda ask: scores_of(ask, USELESS, dice))
        asks = [ask for asked in rounds for ask in asked]
        assert sum(ask.count for ask in asks) <= SIZE * GROUP
        assert {ask.count for ask in asks} <= {4, GROUP - 4}
        assert all(scores[asks[number].goes_on].differ for number in kept), "of use, or left out"


def test_screen_needs_room_for_the_rest_of_a_group():
    with pytest.raises(ValueError, match=r"selection\.first = 16 is not less than"):
        selection(type="screen", first=GROUP)


def learn_by_chance(history, kind, step, dice) -> Selected:
    by_chance = partial(scores_of, rates=USELESS, dice=dice)
    return learn(history, kind, draw(step, 64 * step, history=history), by_chance)[1]


def test_a_curriculum_learns_which_value_of_the_column_teaches():
    dice, kind = random.Random(0), selection(type="curriculum", column="kind")
    history = History(kind_of)
    records = [learn_by_chance(history, kind, step, dice) for step in range(30)]
    late = [kind_of(row) for record in records[10:] for row in record.rows]
    assert late.count("half") / len(late) > 0.6, "one third of the rows"
    assert {"easy", "hard"} <= set(late), "a share is taken as it comes"


MOSTLY_HARD = ["half"] * 4 + ["easy"] * 2 + ["hard"] * 14


def test_where_most_of_a_dataset_is_of_no_use_most_of_the_batch_is():
    """One fifth of the rows can teach. What a value of the column has shown goes before what is
    not known yet: else some of the many rows that are too hard always seem worth a try."""
    dice, kind, position = random.Random(0), selection(size=16, type="curriculum"), 0
    history, asked = History(lambda row: MOSTLY_HARD[row % 20]), []
    for step in range(40):
        beginning = draw(step, position, history=history, rows=2000, size=16)
        beginning.value_of = lambda row: MOSTLY_HARD[row % 20]
        by_chance = partial(scores_of, rates=USELESS, dice=dice, kind_of=beginning.value_of)
        _, record = learn(history, kind, beginning, by_chance)
        position = record.position
        asked += [beginning.value_of(row) for row in record.rows] if step >= 5 else []
    assert asked.count("half") / len(asked) > 0.8


@pytest.mark.parametrize(("rest", "least", "most"), [(0.0, 0.4, 0.5), (0.5, 0.0, 0.15)])
def test_rows_that_are_alike_take_turns(rest, least, most):
    """In as many steps as the dataset has batches, few rows come again; without a rest, those that
    are known to be near one half come back before others are seen."""
    dice, kind, position = random.Random(0), selection(type="curriculum", rest=rest), 0
    history, asked = History(lambda row: ""), []
    for step in range(ROWS // SIZE):
        beginning = draw(step, position, history=history)
        beginning.value_of = lambda row: ""
        alike = partial(scores_of, rates=dict.fromkeys(KINDS, 0.5), dice=dice)
        _, record = learn(history, kind, beginning, alike)
        position = record.position
        asked += record.rows
    assert least < 1 - len(set(asked)) / len(asked) < most


def test_a_history_of_the_same_records_is_the_same_in_every_order():
    """Also in the order of what is iterated over, by which a user's selection may go."""
    dice, kind = random.Random(0), selection(type="dynamic")
    history, again = History(kind_of), History(kind_of)
    records = [learn_by_chance(history, kind, step, dice) for step in range(20)]
    for step, record in enumerate(records):
        again.add(step, record)
    again.bring_to(20)
    for name in ("step", "share", "low", "high", "by_value"):
        assert getattr(again, name) == getattr(history, name)
    assert list(again.seen.items()) == list(history.seen.items())


@pytest.mark.parametrize("rates", [dict.fromkeys(KINDS, rate) for rate in (0.0, 0.01, 1.0)])
@pytest.mark.parametrize("multiple", [1, 2, 8])
@pytest.mark.parametrize("max_rounds", [3, 4, 9])
def test_screen_keeps_its_promises_whatever_the_shape(rates, multiple, max_rounds):
    dice, kind = random.Random(0), selection(type="screen", max_rounds=max_rounds)
    for step in range(40):
        rounds, _, kept = play(
            kind, draw(step, multiple=multiple), partial(scores_of, rates=rates, dice=dice)
        )
        asks = [ask for asked in rounds for ask in asked]
        assert len(rounds) <= max_rounds and all(rounds)
        assert len(kept) % multiple == 0 < len(kept) <= SIZE
        if multiple < SIZE:  # else a whole batch is filled whatever it takes
            assert sum(ask.count for ask in asks) <= SIZE * GROUP


@pytest.mark.parametrize(
    ("rewards", "differ"),
    [
        ((0.1,) * 6, False),
        ((142.857,) * 32, False),
        ((1.0, 1.0 + 1e-9), False),
        ((1.0, 1.001), True),
        ((0.0, 1e-3), True),
        ((1e9, 1e9 + 1), False),
        ((1.0, None, None), False),
        ((1.0, None, 0.0), True),
        ((None, None), False),
    ],
)
def test_which_rewards_differ(rewards, differ):
    """TRL's own test, by a float32 standard deviation, sees variance among equal large scores."""
    assert Scores(rewards).differ == differ


def test_verdicts_are_shares_of_the_groups_and_go_by_the_best_reward_of_the_run():
    asks = [Ask(row=row, count=2) for row in range(4)]
    scores = [Scores(s) for s in [(0.5, 0.5), (0.5, 0.0), (0.0, 0.0), (None, 0.5)]]
    quarters = dict.fromkeys(("differing", "solved", "unsolved", "masked"), 0.25)
    assert selected(4, 1, asks, scores, [0], best=None).shares() == quarters
    later = selected(4, 1, asks, scores, [0], best=1.0)
    assert later.shares() == {**quarters, "solved": 0.0, "unsolved": 0.5}


def test_completions_without_a_reward_say_nothing_of_a_problem():
    asks = [Ask(row=5, count=2), Ask(row=6, count=2)]
    scores = [Scores((None, 1.0)), Scores((1.0, 0.0))]
    history = History(kind_of)
    history.add(0, selected(2, 1, asks, scores, [0, 1], best=None))
    history.bring_to(1)
    assert set(history.seen) == {6} and history.seen[6].right == 1.0
