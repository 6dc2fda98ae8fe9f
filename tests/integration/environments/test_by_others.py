"""Environments by others, as docs/environments-by-others.md has them, with their real packages."""

import tomllib

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.data.values import NO_PROMPT
from mortal_steps.environments.trials.trial import EnvironmentTrial
from mortal_steps.environments.trials.tried import GivenCall
from mortal_steps.plan.loader import parse_config
from mortal_steps.types import Problem
from tests.support.docs_examples import settings, write_modules
from tests.support.environments.served import ECHO, served
from tests.support.paths import ENVIRONMENTS_PYTHON

PAGE = "environments-by-others.md"
needs_them = pytest.mark.skipif(
    not ENVIRONMENTS_PYTHON.exists(), reason=f"no {ENVIRONMENTS_PYTHON}: make environments-env"
)


def config_of(heading, **changes):
    table = tomllib.loads(settings(PAGE, heading))
    return parse_config({"environment": {**table["environment"], **changes}}).environment


def tried(environment, *texts, prompt=NO_PROMPT, **columns):
    """Return what was answered to these messages, and the reward."""
    calls = [GivenCall(name="_reply", arguments={"text": text}) for text in texts]
    trial = EnvironmentTrial(
        environment=environment, rewards=RewardsConfig(), seed=3, passed_on=(), app=""
    )
    problem = Problem(id="train-0", prompt=prompt, columns=columns)
    (row,) = trial.try_out(problems=[problem], calls=calls).rows
    assert not row.episode.has_failed and not row.differences
    answers = [each.content for each in row.episode.calls]
    (reward,) = row.episode.rewards.values()
    return row.episode.prompt[-1]["content"], answers, reward


@pytest.mark.parametrize("heading", ["TextArena", "GEM", "SkyRL-gym", "OpenEnv"])
def test_the_examples_can_be_read(heading):
    assert config_of(heading).is_used


@needs_them
def test_a_game_of_textarena():
    environment = config_of("TextArena", python=str(ENVIRONMENTS_PYTHON))
    rules, (first, *_), reward = tried(environment, "[right]", "[left]", "what?")
    assert "Frozen Lake" in rules and first.startswith("You moved right") and rules not in first
    assert reward == 0.0, "it was not played to its end"
    assert tried(environment)[2] is None, "no move was made"


@needs_them
def test_an_environment_of_gem():
    environment = config_of("GEM", python=str(ENVIRONMENTS_PYTHON))
    numbers = [f"\\boxed{{{number}}}" for number in (1, 10, 5, 3)]
    rules, answers, reward = tried(environment, *numbers)
    assert "between 1 and 10" in rules and "within 6 turns" in rules
    assert "At turn 1, you guessed 1" in answers[0] or answers[0] is None
    assert 0.0 <= reward <= 1.0
    assert tried(environment)[2] is None, "no step was taken"


@needs_them
def test_a_class_of_the_users_for_skyrl(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_modules(PAGE, "SkyRL-gym", tmp_path)
    environment = config_of("SkyRL-gym", python=str(ENVIRONMENTS_PYTHON))
    asked = [{"role": "user", "content": "What is 3 + 4?"}]
    row = {"prompt": asked, "reward_spec": {"ground_truth": "7"}}
    assert tried(environment, "5", "7", **row) == ("What is 3 + 4?", ["No. Try again.", None], 1.0)
    assert tried(environment, **row)[2] is None, "no step was taken"


@needs_them
def test_a_server_of_openenv():
    with served(ECHO, str(ENVIRONMENTS_PYTHON)) as url:
        environment = config_of("OpenEnv", url=url)
        prompt, answers, reward = tried(environment, "Hello", "you")
    assert prompt == "Echo Env environment ready!" and answers == ["Hello", "you"]
    assert reward == pytest.approx(0.3)
