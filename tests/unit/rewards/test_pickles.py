"""Digests of what objects say, and pickles that travel."""

import functools
import logging
import os
import pickle
import re
import sys
import threading
from collections import namedtuple
from dataclasses import dataclass

import cloudpickle
import pytest

from mortal_steps.errors import CorruptFileError, RewardError
from mortal_steps.rewards.pickles.digest import digest_of
from mortal_steps.rewards.pickles.files import read_pickle, write_pickle
from tests.support.refused import refused
from tests.support.rewards.digest_script import SCRIPT, digests_of


def test_a_digest_is_the_same_after_edits_elsewhere_in_the_file():
    first = digests_of()
    assert len(set(first)) == len(first) == 5
    assert digests_of("# a comment\n\nUNUSED = 3\n" + SCRIPT) == first


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("THRESHOLD = 0.5", "THRESHOLD = 0.6", [0, 1, 2]),
        ('"four"', '"five"', [0, 1, 2]),
        ("number - 1", "number - 2", [0, 1, 2]),
        ("high: float = 1.0", "high: float = 2.0", [3]),
        ("scale=3.0", "scale=4.0", [2]),
        ("self.owner = self", "self.owner = None", [3]),
    ],
)
def test_a_digest_tells_what_a_reward_depends_on(before, after, changed):
    assert before in SCRIPT
    first, now = digests_of(), digests_of(SCRIPT.replace(before, after))
    assert [place for place in range(5) if first[place] != now[place]] == changed


Pair = namedtuple("Pair", "low high")


@dataclass
class State:
    values: list


def adding(value):
    return lambda completions, **kwargs: [value] * len(completions)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", b"1"),
        ([1, 2], (1, 2)),
        ([[1], 2], [[1, 2]]),
        ({1: 2}, {2: 1}),
        (Pair(1, 2), Pair(2, 1)),
        (State([1]), State([2])),
        (re.compile("a"), re.compile("a", re.I)),
        (logging.getLogger("a"), logging.getLogger("b")),
        (len, max),
        (functools.partial(max, 1), functools.partial(max, 2)),
    ],
    ids=repr,
)
def test_values_that_differ_have_digests_that_differ(one, other):
    assert digest_of(adding(one), "it") != digest_of(adding(other), "it")
    assert digest_of(adding(one), "it") == digest_of(adding(one), "it")


def test_what_cannot_be_kept_is_refused_with_its_place_and_the_remedy():
    holding = State([threading.Lock()])
    with refused(RewardError, "value", "lock", "inside the function"):
        digest_of(adding(holding), "it")


def test_a_pile_of_lists_is_refused_and_no_stack_runs_over():
    pile = functools.reduce(lambda inner, _: [inner], range(400), [])
    with refused(RewardError, "nested"):
        digest_of(adding(pile), "it")


def in_script(text):
    """What `reward` is in a script, of which another process knows nothing."""
    namespace = {"__name__": "__main__"}
    exec(text, namespace)
    return namespace["reward"]


CACHED = """
import functools

@functools.lru_cache(maxsize=7)
def low(number):
    return number and low(number - 1)

def reward(completions, **kwargs):
    return [float(low(len(text))) for text in completions]
"""


def test_a_function_with_a_cache_travels_with_its_code(tmp_path):
    file, reward = tmp_path / "reward.pickle", in_script(CACHED)
    digest, _ = digest_of(reward, "it")
    assert digest == digest_of(in_script(CACHED), "it")[0]
    for edit in ("number - 2", "maxsize=8"):
        before = {"number - 2": "number - 1", "maxsize=8": "maxsize=7"}[edit]
        assert digest_of(in_script(CACHED.replace(before, edit)), "it")[0] != digest
    write_pickle(file, reward, digest, "it")
    read = read_pickle(file, digest, ())
    assert read(completions=["ab"]) == [0.0]
    cached = read.__globals__["low"]
    assert cached.cache_parameters() == {"maxsize": 7, "typed": False}
    assert cached.__wrapped__.__globals__["low"] is cached


def test_what_only_this_process_finds_by_its_name_is_refused():
    text = """
class Only:
    def __reduce__(self):
        return "ONLY"
ONLY = Only()
reward = lambda completions, **kwargs: [ONLY]
"""
    with refused(RewardError, "ONLY", "module"):
        digest_of(in_script(text), "it")


def test_a_type_variable_of_the_script_makes_the_script_no_module_of_the_reward():
    text = """
import typing
class Generic(typing.Generic[typing.TypeVar("T")]): pass
reward = lambda completions, **kwargs: [Generic]
"""
    assert "__main__" not in digest_of(in_script(text), "it")[1]


def test_the_environment_is_that_of_the_process_that_scores(tmp_path, monkeypatch):
    file, reward = tmp_path / "reward.pickle", adding(os.environ)
    digest, _ = digest_of(reward, "it")
    monkeypatch.setenv("A_KEY", "hidden-42")
    assert digest_of(reward, "it")[0] == digest != digest_of(adding(os.environb), "it")[0]
    write_pickle(file, reward, digest, "it")
    assert b"hidden-42" not in file.read_bytes()
    assert read_pickle(file, digest, ())(completions=["a"])[0] is os.environ


def test_a_pickle_is_read_by_another_process(tmp_path):
    file, reward = tmp_path / "reward.pickle", adding(0.25)
    digest, _ = digest_of(reward, "it")
    write_pickle(file, reward, digest, "it")
    assert read_pickle(file, digest, ())(completions=["a", "b"]) == [0.25, 0.25]


def test_a_pickle_that_was_altered_is_not_executed(tmp_path):
    file, executed = tmp_path / "reward.pickle", tmp_path / "executed"
    write_pickle(file, adding(1), "a" * 64, "it")
    with pytest.raises(CorruptFileError):
        read_pickle(file, "b" * 64, ())

    class Touches:
        def __reduce__(self):
            return executed.touch, ()

    head = file.read_bytes().partition(b"\n")[0]
    file.write_bytes(head + b"\n" + pickle.dumps(Touches()))
    with pytest.raises(CorruptFileError):
        read_pickle(file, "a" * 64, ())
    assert not executed.exists()


def test_a_pickle_of_another_python_is_refused_with_both_versions(tmp_path):
    file = tmp_path / "reward.pickle"
    write_pickle(file, adding(1), "a" * 64, "it")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    file.write_bytes(file.read_bytes().replace(f'"{here}"'.encode(), b'"3.99"', 1))
    with refused(RewardError, "Python 3.99", f"Python {here}"):
        read_pickle(file, "a" * 64, ())


def test_the_digest_of_an_object_survives_its_pickle():
    reward = adding(State([1, {"a": Pair(1, 2)}]))
    again = pickle.loads(cloudpickle.dumps(reward))
    assert digest_of(again, "it") == digest_of(reward, "it")
