"""What kinds of environments by others are set up with."""

import pytest

from mortal_steps.environments.kinds.episode_return import EpisodeReturn
from mortal_steps.environments.kinds.skyrl import added_to
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan

PROMPT = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1?"}]


@pytest.mark.parametrize(
    "environment",
    [
        {"type": "gem", "id": "game:Wordle-v0", "args": {"max_turns": 3}},
        {"type": "textarena", "id": "Wordle-v0"},
        {"type": "skyrl"},
        {"type": "skyrl", "id": "adding.py:Adding"},
        {"type": "openenv", "url": "http://127.0.0.1:8000", "action": "message"},
    ],
)
def test_a_kind_brings_all_that_a_run_needs(environment):
    config = parse_config({"environment": environment})
    assert config.environment.type == environment["type"]
    assert config.environment.is_used and config.num_made_rows is not None
    assert Plan(config).code.scoring == tuple(
        filter(lambda spec: ".py:" in spec, environment.values())
    )
    other = {**environment, "retries": 3}
    assert parse_config({"environment": other}).fingerprint() == config.fingerprint()


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"type": "gem"}, r"environment.*id"),
        ({"type": "gem", "id": "a", "factory": "shop.py:Shop"}, "brings its own tools"),
        ({"type": "openenv", "url": "127.0.0.1:8000"}, "environment.*url"),
        (
            {"type": "openenv", "url": "http://a", "action": "b", "tool": "c"},
            r"environment\.action and environment\.tool",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(environment, told):
    with pytest.raises(ConfigError, match=told):
        parse_config({"environment": environment})


@pytest.mark.parametrize(
    ("how", "rewards", "total"),
    [
        ("sum", [1.0, None, 0.5], 1.5),
        ("last", [1.0, 0.5, None], 0.5),
        ("sum", [None], None),
        ("last", [], None),
    ],
)
def test_rewards_of_steps_become_one_and_none_stays_none(how, rewards, total):
    episode_return = EpisodeReturn(how)
    for reward in rewards:
        episode_return.add(reward)
    assert episode_return.total == total


def test_what_init_appends_to_the_prompt_is_observed():
    longer = [PROMPT[0], {"role": "user", "content": "1 + 1? Think."}]
    assert (added_to(PROMPT, PROMPT), added_to(PROMPT, longer)) == (None, " Think.")
    for other in (PROMPT[1:], [PROMPT[0], {"role": "user", "content": "2 + 2?"}]):
        with pytest.raises(ValueError, match=r"init\(\)"):
            added_to(PROMPT, other)
