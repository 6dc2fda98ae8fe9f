"""Rewards and datasets that selections get wrong if they can: no difference that is one, equal
rewards that are not, too few problems."""

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mortal_steps.report.problems import _rate, _verdict
from mortal_steps.selection.draw import Scores
from mortal_steps.selection.history import History
from tests.support.selections import draw, kind_of, learn, play, scores_of, selection

KINDS = ["curriculum", "screen", "dynamic"]
SIZE, GROUP = 4, 4
TENTH = 0.1 + 0.2 - 0.2
"""A tenth, as a sum of weighted scores may come to."""
PLANTED = {
    "one of four": (1.0, 0.0, 0.0, 0.0),
    "near-equal floats": (0.1, TENTH, 0.1, TENTH),
    "nearer than TRL sees": (1.0, 1.0 + 1e-9, 1.0, 1.0),
    "large and equal": (142.857,) * 4,
    "large and near": (1e9, 1e9 + 1, 1e9, 1e9),
    "none scored": (None,) * 4,
    "one scored": (None, 1.0, None, None),
    "two scored and equal": (None, 1.0, 1.0, None),
    "all solved": (1.0,) * 4,
    "all unsolved": (0.0,) * 4,
    "all below 0": (-0.3,) * 4,
}
TEACHES = {"one of four"}


class Answering:
    """Gives the completions of each group the same rewards, also where it is continued."""

    def __init__(self, rewards):
        self.rewards = rewards
        self._asks = []

    def __call__(self, ask):
        self._asks.append(ask)
        begun = 0 if ask.goes_on is None else self._asks[ask.goes_on].count
        return Scores(self.rewards[begun : begun + ask.count])


def small(name):
    options = {"first": 2} if name == "screen" else {}
    return selection(size=SIZE, group=GROUP, type=name, **options)


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("name", KINDS)
def test_it_goes_on_with_rewards_that_are_all_of_a_kind(name, planted):
    """Each step trains; only groups that can teach are sampled in the round that is kept for
    them; and what is learned of the problems is a rate."""
    history, kind, position = History(kind_of), small(name), 0
    for step in range(12):
        beginning = draw(step, position, history=history, size=SIZE, group=GROUP)
        rounds, record = learn(history, kind, beginning, Answering(PLANTED[planted]))
        position = record.position
        assert 0 < len(record.kept) <= SIZE
        groups = [chain for _, chain in record.groups() if chain[-1] in record.kept]
        assert all(record.differs(chain) == (planted in TEACHES) for chain in groups)
        if name == "dynamic":
            assert len(rounds) == (1 if planted in TEACHES else 4)
        assert record.shares()["differing"] == (planted in TEACHES)
    for seen in history.seen.values():
        assert seen.right >= 0 and seen.wrong >= 0
    rates = [right / (right + wrong) for right, wrong in history.by_value.values()]
    expected = {"one of four": 0.25, "all unsolved": 0.0, "all below 0": 0.0}
    if planted in ("none scored", "one scored"):
        assert not history.seen and not rates, "they say nothing of a problem"
    else:
        assert rates == [pytest.approx(expected.get(planted, 1.0))] * len(rates) != []


@pytest.mark.parametrize("planted", ["near-equal floats", "large and equal", "all solved"])
def test_equal_rewards_are_solved_whatever_they_are_rounded_by(planted):
    """Also beside a best reward, or a range of all rewards, that is a rounding away."""
    kind, history = small("dynamic"), History(kind_of)
    beginning = draw(0, 0, history=history, size=SIZE, group=GROUP)
    _, record = learn(history, kind, beginning, Answering(PLANTED[planted]))
    assert record.shares()["solved"] == 1.0
    rewards = PLANTED[planted]
    rates = [_rate(sum(rewards) / 4, 0.0, max(rewards)), _rate(min(rewards), 0.0, max(rewards))]
    assert rates == [1.0, 1.0] and _verdict(rates) == "solved"
    assert _rate(max(rewards), min(rewards), max(rewards) + 5) == 0.0


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("name", KINDS)
def test_a_dataset_may_be_smaller_than_a_round(name, rows):
    """Its rows come again, as in a batch of `all`."""
    kind, history, position = small(name), History(kind_of), 0
    dice = random.Random(0)
    for step in range(20):
        beginning = draw(step, position, history=history, rows=rows, size=SIZE, group=GROUP)
        by_chance = partial(
            scores_of, rates=dict.fromkeys(("easy", "half", "hard"), 0.5), dice=dice
        )
        rounds, record = learn(history, kind, beginning, by_chance)
        position = record.position
        asked = {ask.row for each in rounds for ask in each}
        assert asked <= set(range(rows)) and len(rounds) <= 9
        if name != "screen":  # which has a budget, and tells problems apart by few completions
            assert len(record.kept) == SIZE
    assert set(history.seen) == set(range(rows))


SOME = st.sampled_from(
    [0.0, 1.0, 0.5, None, 0.1, TENTH, 1.0 + 1e-9, 142.857, -3.0, 1e9, 1e9 + 1, 1e-9, 1e-6, 1e-3]
)


@st.composite
def shapes(drawn):
    """Batch size, group size, what a batch has to be a multiple of, rows, options."""
    multiple = drawn(st.integers(1, 4))
    size, group = multiple * drawn(st.integers(1, 4)), drawn(st.integers(3, 9))
    return {
        **{"size": size, "group": group, "multiple": multiple, "rows": drawn(st.integers(1, 50))},
        "first": drawn(st.integers(2, group - 1)),
        "max_rounds": drawn(st.integers(3, 9)),
    }


class Drawn:
    """Gives each completion a reward of a table, whichever comes next."""

    def __init__(self, table, seed):
        self._table, self._dice = table, random.Random(seed)

    def __call__(self, ask):
        return Scores(tuple(self._dice.choice(self._table) for _ in range(ask.count)))


class Again:
    """Gives the same scores again, and then others."""

    def __init__(self, scores, others=None):
        self._scores, self._others = iter(scores), others

    def __call__(self, ask):
        return next(self._scores, None) or self._others(ask)


def whole(asks, number):
    """How many completions the group has that ends with this ask."""
    before = asks[number].goes_on
    return asks[number].count + (0 if before is None else whole(asks, before))


@pytest.mark.parametrize("name", KINDS)
@given(shape=shapes(), table=st.lists(SOME, min_size=1, max_size=6), seed=st.integers(0, 2**32))
@settings(max_examples=150)
def test_whatever_the_rewards_are_it_keeps_whole_groups_and_asks_again_for_the_same(
    name, shape, table, seed
):
    options = {"curriculum": [], "screen": ["first", "max_rounds"], "dynamic": ["max_rounds"]}[name]
    chosen = {option: shape[option] for option in options}
    kind = selection(size=shape["size"], group=shape["group"], type=name, **chosen)
    sizes = {each: shape[each] for each in ("size", "group", "multiple", "rows")}
    history, position = History(kind_of), 0
    for step in range(4):
        beginning = partial(draw, step, position, history=history, seed=seed, **sizes)
        rounds, scores, kept = play(kind, beginning(), Drawn(table, seed + step))
        asks = [ask for asked in rounds for ask in asked]
        assert 0 < len(kept) <= shape["size"] and len(kept) % shape["multiple"] == 0
        assert len(set(kept)) == len(kept)
        assert all(whole(asks, number) == shape["group"] for number in kept)
        assert len(rounds) <= shape["max_rounds"] and all(rounds)
        for cut in range(len(rounds)):  # whatever comes of the rounds after it
            same = Again(scores[: sum(map(len, rounds[:cut]))], Drawn(table, seed - 1))
            again, _, _ = play(kind, beginning(), same)
            assert again[: cut + 1] == rounds[: cut + 1]
        _, record = learn(history, kind, beginning(), Again(scores))
        assert list(record.kept) == sorted(kept)
        position = record.position
        assert all(seen.right >= 0 and seen.wrong >= 0 for seen in history.seen.values())
        check_choice(name, record, len(kept), shape)


def check_choice(name, record, num_kept, shape):
    """Groups whose rewards do not differ are kept where there are too few that do."""
    chains = [chain for _, chain in record.groups()]
    differ = [chain[-1] for chain in chains if record.differs(chain)]
    if name == "dynamic":
        assert num_kept == shape["size"]
        assert set(differ[:num_kept]) <= set(record.kept)
    if name == "screen" and num_kept > shape["multiple"]:
        # By all of its completions, a group differs if it does by the first ones.
        assert set(record.kept) <= set(differ)
