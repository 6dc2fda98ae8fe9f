"""Functions as agents: what they are given, and what their results are."""

import math
from collections.abc import Mapping

import pytest

from mortal_steps.environments.inside.agents import AgentHandler
from mortal_steps.environments.kinds.agent import AgentEnvironment, FunctionAgent
from mortal_steps.environments.messages import AgentResult, EpisodeStart
from mortal_steps.errors import ConfigError
from tests.support.refused import refused

START = EpisodeStart(
    environment=None, prompt=[], row={"prompt": [], "target": 7}, reset_seed=1, seed=2
)


def played(function):
    return FunctionAgent(function).run(base_url="http://here", start=START)


def scores(base_url, target) -> float:
    return target


def tells(base_url, **row) -> dict:
    return {"reward": True, "columns": len(row)}


def maybe(base_url) -> float | None:
    return None


def table(base_url) -> Mapping[str, float]:
    return {"reward": 0.5}


def abstains(base_url) -> dict:
    return {"reward": None, "turns": 3}


def nothing(base_url):
    return "some text"


@pytest.mark.parametrize(
    ("function", "reward", "result"),
    [
        (scores, "scores", AgentResult(reward=7.0)),
        (tells, "tells", AgentResult(reward=1.0, metrics={"columns": 2.0})),
        (maybe, "maybe", AgentResult()),
        (table, "table", AgentResult(reward=0.5)),
        (abstains, "abstains", AgentResult(metrics={"turns": 3.0})),
        (nothing, None, AgentResult()),
    ],
)
def test_the_annotation_says_whether_a_result_is_a_reward(function, reward, result):
    assert FunctionAgent(function).reward == reward
    assert played(function) == result


def test_an_annotation_may_be_a_text():
    def agent(base_url) -> "float":
        return 1.0

    agent.__annotations__["base_url"] = "NotThere"
    assert FunctionAgent(agent).reward == "agent"


def unannotated(base_url):
    return 0.5


def needs(base_url, colour) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (unannotated, ["unannotated returned 0.5", "-> float"]),
        (needs, ["'colour'", "'target'"]),
    ],
)
def test_what_cannot_be_used_stops_the_run(function, parts):
    with pytest.raises(ConfigError) as wrong:
        played(function)
    assert all(part in str(wrong.value) for part in parts)


def test_an_agent_without_an_address_is_refused_when_it_is_loaded():
    with refused(ConfigError, "`base_url`"):
        FunctionAgent(lambda prompt: None)


def bad(base_url) -> float:
    return math.nan


def no_reward(base_url) -> dict:
    return {"turns": 3}


async def away(base_url) -> float:
    try:
        raise ConnectionError("port 9")
    except ConnectionError as error:
        raise RuntimeError("a framework's own") from error


async def later(base_url) -> float:
    return 0.25


@pytest.mark.parametrize(
    ("name", "field", "part"),
    [
        ("bad", "failure", "reward = nan"),
        ("no_reward", "failure", "no `reward`"),
        ("away", "outage", "a framework's own"),
        ("later", "reward", "0.25"),
    ],
)
def test_a_failure_is_no_score_and_an_outage_no_failure(name, field, part):
    environment = AgentEnvironment(agent=f"{__file__}:{name}")
    handler = AgentHandler(environment=environment, terms={})
    found = handler.run(start=START, base_url="http://here")
    assert part in str(getattr(found, field))
    others = {"reward", "failure", "outage"} - {field}
    assert [getattr(found, other) for other in others] == [None, None]
