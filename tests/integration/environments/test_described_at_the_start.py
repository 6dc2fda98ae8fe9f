"""mortal_steps.orchestration.checking.resolve_defaults: what environments say of themselves."""

import signal
from pathlib import Path

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.processes import host
from mortal_steps.errors import ConfigError, WorkerLostError
from mortal_steps.orchestration.checking import own_rewards
from mortal_steps.orchestration.checking.own_rewards import with_other_environments
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults, resolved_like
from mortal_steps.orchestration.open_run import changes
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.scores import reward_weights
from tests.support.environments.describing import describe_once

MODULE = '''
class Shop:
    def reset(self, **row): return None
    def buy(self, item: str) -> str:
        """Buy.

        Args:
            item: What.
        """
        return item
    def get_reward(self): return 1.0


class Game(Shop):
    def get_reward(self): return 0.5


class Silent:
    def reset(self): return None


def make(): return Shop()


def untold(item):
    return item
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(MODULE)


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture(autouse=True)
def asked_once(known, monkeypatch):
    """Two processes are started for each environment of these tests, and not each time again."""
    describe = own_rewards.describe

    def ask(plan):
        key = plan.environment.model_dump_json()
        if key not in known:
            known[key] = describe(plan)
        return known[key]

    monkeypatch.setattr(own_rewards, "describe", ask)


def config(factory="shop.py:Shop", rewards=None):
    return RunConfig.model_validate(
        {
            "model": {"new": {}},
            "rollout": {"engine": "transformers"},
            "environment": {"factory": factory},
            "rewards": rewards or {},
        }
    )


def test_the_rewards_of_its_classes_are_named_once_each():
    table = {"one": "shop.py:Shop", "two": "shop.py:make", "quiet": "shop.py:Silent"}
    found = resolve_defaults(config({**table, "game": "shop.py:Game"}))
    assert [(term.type, term.full_name) for term in found.rewards.terms] == [
        ("get_reward", "Shop"),
        ("get_reward", "Game"),
    ]
    assert reward_weights(found.rewards) == {"Shop": 1.0, "Game": 1.0}
    assert resolve_defaults(found).rewards == found.rewards


def test_they_follow_the_rewards_that_are_written_down():
    written = {"functions": ["a:near", "a:far"], "weights": [0.5, 2.0]}
    found = resolve_defaults(config(rewards=written)).rewards
    assert reward_weights(found) == {"near": 0.5, "far": 2.0, "Shop": 1.0}
    own = {"terms": [{"type": "get_reward", "environment": "Shop", "weight": 3.0}]}
    found = resolve_defaults(config(rewards=own)).rewards
    assert reward_weights(found) == {"Shop": 3.0}


def test_a_reward_that_no_environment_gives_is_refused():
    own = {"terms": [{"type": "get_reward", "environment": "Game"}]}
    with pytest.raises(ConfigError, match=r"environment = 'Game'.*there are: 'Shop'"):
        resolve_defaults(config(rewards=own))


def forked_from(begun, environment):
    """The rewards of a fork with another environment."""
    config = begun.model_copy(update={"environment": environment})
    return with_other_environments(Plan(config).environment, begun.rewards)


def test_a_fork_with_another_environment_has_its_reward_and_not_the_one_before():
    begun = resolve_defaults(config(rewards={"functions": ["a:near"]}))
    other = begun.environment.model_copy(update={"factory": "shop.py:Game"})
    forked = forked_from(begun, other)
    assert reward_weights(forked) == {"near": 1.0, "Game": 1.0}
    weighed = {"terms": [{"type": "get_reward", "environment": "Shop", "weight": 3.0}]}
    begun = resolve_defaults(config(rewards=weighed))
    longer = begun.environment.model_copy(update={"max_tool_calling_iterations": 9})
    forked = forked_from(begun, longer)
    assert forked == begun.rewards
    assert forked_from(begun, EnvironmentConfig()).terms == ()


def test_without_any_the_rewards_stay_as_they_are():
    assert not resolve_defaults(config("shop.py:Silent")).rewards.are_named


@pytest.mark.parametrize("rewards", [{}, {"functions": ["a:near"], "weights": [0.5]}])
def test_a_run_goes_on_with_what_its_file_says(rewards):
    written = config(rewards=rewards)
    begun = resolve_defaults(written)
    assert resolved_like(written, begun).fingerprint() == begun.fingerprint()
    assert changes(begun, written) == []
    assert changes(begun, config(rewards={"functions": ["a:far"], "weights": [0.5]}))


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"factory": "shop.py:Shopp"}, r"environment\.factory = 'shop\.py:Shopp'.*mean Shop\?"),
        ({"factory": {"a": "nowhere:B"}}, r"environment\.factory\.a = 'nowhere:B'.*'nowhere'"),
        ({"tools": ["shop.py:untold"]}, r"the tool 'untold' cannot be described.*`Args:`"),
        ({"factory": "ends.py:Shop"}, r"importing ends\.py:Shop ended the process.*3"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_run_begins(environment, told):
    Path("ends.py").write_text("import os\nos._exit(3)")
    with pytest.raises(ConfigError, match=told):
        resolve_defaults(RunConfig.model_validate({"environment": environment}))


def test_a_process_that_is_killed_is_not_the_modules_fault():
    Path("ends.py").write_text(f"import os\nos.kill(os.getpid(), {int(signal.SIGKILL)})")
    with pytest.raises(WorkerLostError, match=r"SIGKILL.*memory"):
        describe_once(config("ends.py:Shop").environment)


def test_an_import_that_hangs_is_named_with_the_line_where_it_was(monkeypatch):
    monkeypatch.setattr(host, "START_S", 8.0)
    Path("hangs.py").write_text("import time\n\ndef forever():\n    time.sleep(600)\n\nforever()\n")
    with pytest.raises(ConfigError) as refused:
        describe_once(config("hangs.py:Shop").environment)
    for part in ("importing hangs.py:Shop takes longer than 8 s", "line 4 in forever"):
        assert part in str(refused.value)
