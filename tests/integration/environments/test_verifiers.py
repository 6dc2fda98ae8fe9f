"""`environment.type = "verifiers"`: the same game for v0 and v1, played by the packages
themselves."""

import functools
import json
from dataclasses import asdict

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.rows import RowReader
from mortal_steps.errors import ConfigError, DataError, EnvironmentFailedError
from mortal_steps.plan.loader import parse_config
from tests.support.environments.cases import CaseRun
from tests.support.environments.describing import describe_once
from tests.support.environments.engine import SCRIPTS, Voice, called
from tests.support.environments.models import build_model
from tests.support.environments.mortal import run_mortal
from tests.support.paths import ROOT, VERIFIERS_PYTHONS

GAMES = ROOT / "tests/support/verifiers_games"
VERSIONS = ("v0", "v1")
pytestmark = pytest.mark.skipif(
    not all(each.exists() for each in VERIFIERS_PYTHONS.values()),
    reason="no verifiers; `make verifiers-env`",
)


@pytest.fixture(autouse=True)
def games(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(GAMES))


def environment(version, **settings) -> dict:
    python = str(VERIFIERS_PYTHONS[version])
    return {"type": "verifiers", "id": f"guess-{version}", "python": python, **settings}


def loaded(version, **settings) -> EnvironmentConfig:
    return parse_config({"environment": environment(version, **settings)}).environment


def rows(config, *, held_out=False, limit=None):
    return RowReader(environment=config, passed_on=()).read(held_out=held_out, limit=limit)


@functools.cache
def tasks(version) -> list:
    return rows(loaded(version), limit=4)


VOICE = Voice("qwen3")
GUESSES = [VOICE.text(str(number)) for number in range(4)]


def play(version, folder, says=GUESSES, **settings):
    """Take two steps, in which the model says at random what it may."""
    model = build_model(folder / "model", "qwen3", context=2048)
    (folder / "model" / SCRIPTS).write_text(json.dumps(says))
    config = parse_config(
        {
            "seed": 11,
            "model": {"name_or_path": str(model), "max_model_len": 2048},
            "environment": environment(version, **settings),
            "rewards": {"terms": [{"type": "get_reward", "environment": f"guess-{version}"}]},
            "rollout": {"engine": "tests.support.environments.engine:ScriptedEngine"},
            "training": {
                "batch_size": 2,
                "num_generations": 4,
                "max_completion_length": 200,
                "importance_sampling_correction": False,
                "gradient_checkpointing": False,
            },
        }
    )
    run = CaseRun(
        config=config,
        model_path=str(model),
        rows=tasks(version),
        functions=[],
        weights=[],
        tools=[],
        factory=None,
        num_steps=2,
    )
    return run_mortal(run, folder / "run")


def without_names(outcome) -> list:
    """Return what the steps were, and not what their reward is called."""
    steps = [asdict(step) for step in outcome.steps]
    return [{**each, "rewards": list(each["rewards"].values())} for each in steps]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(GAMES))
        return {each: play(each, tmp_path_factory.mktemp(each)) for each in VERSIONS}


def test_the_same_dialogue_has_the_same_tokens_in_both(played):
    assert without_names(played["v0"]) == without_names(played["v1"])
    scores = [score for step in played["v1"].steps for score in step.rewards["guess-v1"]]
    assert set(scores) == {0.0, 1.0}
    assert any(False in mask for step in played["v1"].steps for mask in step.masks)


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_in_the_middle_of_an_episode_it_ends_with_the_same_bits(version, played, tmp_path):
    file = tmp_path / "killed"
    killed = play(version, tmp_path, args={"killed": str(file)})
    assert file.exists()
    assert without_names(killed) == without_names(played[version])


@pytest.mark.parametrize(
    ("version", "args"),
    [("v0", {"rewards": ["away"]}), ("v1", {"taskset": {"task": {"is_away": True}}})],
)
def test_a_reward_that_cannot_be_computed_is_not_0(version, args, tmp_path):
    with pytest.raises(EnvironmentFailedError, match="the judge is away"):
        play(version, tmp_path, args=args, retries=0)


def told_by_tools(outcome) -> set:
    said = [each for step in outcome.steps for whole in step.messages for each in whole]
    return {each["content"] for each in said if each["role"] == "tool"}


def with_scales(version, **task) -> dict:
    return task if version == "v0" else {"taskset": {"task": task}}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_outage_of_a_tool_ends_the_rollout_and_is_never_told_to_the_model(version, tmp_path):
    broken, weighs = tmp_path / "broken", VOICE.calls(called("weigh", item="pears"))
    args = with_scales(version, broken=str(broken))
    played = play(version, tmp_path, [weighs, *GUESSES], args=args)
    assert broken.exists()
    assert told_by_tools(played) == {"pears weigh 3."}


def test_whatever_else_a_tool_of_a_toolset_raises_is_told_to_the_model(tmp_path):
    weighs = [VOICE.calls(called("weigh", item=each)) for each in ("pears", "feathers")]
    args = with_scales("v1", broken=str(tmp_path / "broken"))
    told = told_by_tools(play("v1", tmp_path, [*weighs, *GUESSES], args=args))
    assert told == {"pears weigh 3.", "Error executing tool weigh: too light"}


def test_outages_of_a_toolset_elsewhere_are_refused(tmp_path):
    url = "http://127.0.0.1:9/mcp"
    args = with_scales("v1", broken=str(tmp_path / "broken"), scales_at=url)
    with pytest.raises(ConfigError, match=rf"outages.*Scales of 'guess-v1'.*\({url}\)"):
        describe_once(loaded("v1", args=args))
    assert describe_once(loaded("v1", args=args, outages=[]))


def test_a_task_that_gave_no_reward_is_not_scored_0(tmp_path):
    played = play("v1", tmp_path, args={"taskset": {"task": {"is_scored": False}}})
    assert {score for step in played.steps for score in step.rewards["guess-v1"]} == {None}


def test_rewards_of_whole_groups_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"'guess-v0'.*best_of_all.*compare"):
        describe_once(loaded("v0", args={"rewards": ["best_of_all"]}))
    with pytest.raises(ConfigError, match=r"'guess-v1'.*2 dialogues.*player, player"):
        play("v1", tmp_path, args={"players": 2})


@pytest.mark.parametrize("version", VERSIONS)
def test_its_tasks_are_rows(version):
    first, *_, last = tasks(version)
    assert first["prompt"] == [{"role": "user", "content": "Guess 0"}]
    assert (last["answer"] if version == "v0" else last["task"]["answer"]) == "3"
    with pytest.raises(DataError, match=f"'guess-{version}'.*evaluation.*data.eval_samples"):
        rows(loaded(version), held_out=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_loaded_is_named(version):
    for settings, told in (({"args": {"size": 3}}, "size"), ({"id": "nowhere"}, "'nowhere'")):
        with pytest.raises(ConfigError, match=r"environment\.id = .*cannot load it") as refused:
            describe_once(loaded(version, **settings))
        assert told in str(refused.value)
