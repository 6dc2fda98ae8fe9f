"""Shards whose episodes had environments, scored in a reward host: what is called, and what not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.config import ComputeConfig, RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.scoring.assignments import assign
from mortal_steps.rewards.scoring.scorer import Scorer
from mortal_steps.scores import reward_names
from mortal_steps.types import Episode, GeneratedShard
from tests.support.rewards.shards import CHAT, make_completion, make_shard

STATE = TrainerState(global_step=0, max_steps=1)
CODE = """
def letters(completions, prompts, log_extra, **kwargs):
    log_extra("asked", [prompt[-1]["content"] for prompt in prompts])
    return [float(len(messages)) for messages in completions]


def near(completions, environments, **kwargs):
    raise AssertionError("called without environments")
"""
MESSAGES = (
    {"role": "assistant", "content": "a"},
    {"role": "tool", "name": "add", "content": "total 6"},
    {"role": "assistant", "content": "6"},
)


@pytest.fixture
def scorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scorer]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(CODE)
    config = RewardsConfig.model_validate(
        {
            "terms": [
                {"type": "function", "function": "rewards.py:letters"},
                {"type": "function", "function": "rewards.py:near"},
                {"type": "get_reward", "environment": "Shop"},
            ]
        }
    )
    assignments = assign(
        config,
        compute=ComputeConfig(),
        gym_rows=False,
        template_options={},
        run_dir=tmp_path,
        before_start=lambda: None,
    )
    made = Scorer(assignments, reward_names(config), config)
    yield made
    made.close()


def shard_of(*episodes: Episode | None) -> GeneratedShard:
    """One problem, with a completion for each episode."""
    shard = make_shard(("",), prompt=CHAT)
    own = [{"role": "user", "content": "ab= To 6."}]
    completions = [
        replace(make_completion("6"), episode=each, messages=MESSAGES, prompt=own)
        for each in episodes
    ]
    return replace(shard, groups=[replace(shard.groups[0], completions=completions)])


def test_only_what_needs_no_environment_is_called(scorer: Scorer) -> None:
    good = Episode(stop="done", scores={"near": -1.0, "Shop": 0.5}, extra={"total": 6})
    other = Episode(stop="length", scores={"near": None, "Shop": 1.0}, extra={"total": 7})
    scores, seconds = scorer.score(shard_of(good, other), STATE, sha256="")
    assert scores.rewards == [
        [
            {"letters": 3.0, "near": -1.0, "Shop": 0.5},
            {"letters": 3.0, "near": None, "Shop": 1.0},
        ]
    ]
    assert scores.extra == {"asked": ["ab= To 6."] * 2, "total": [6, 7]}
    assert list(seconds) == ["letters"]
    assert scores.failures == ()


def test_a_failed_episode_alone_has_no_score(scorer: Scorer) -> None:
    good = Episode(stop="done", scores={"near": -1.0, "Shop": 0.5})
    bad = Episode(stop="failed", failure="reset: no answer within 60 s")
    scores, _ = scorer.score(shard_of(good, bad, good), STATE, sha256="")
    nothing = {"letters": None, "near": None, "Shop": None}
    scored = {"letters": 3.0, "near": -1.0, "Shop": 0.5}
    assert scores.rewards == [[scored, nothing, scored]]
    (failure,) = scores.failures
    assert (failure.function, failure.kind, failure.num_completions) == (
        "environment",
        "environment",
        1,
    )
    assert "60 s" in failure.message


def test_completions_without_an_environment_are_refused_by_the_reward_that_needs_one(
    scorer: Scorer,
) -> None:
    with pytest.raises(RewardError, match="'near' is computed beside"):
        scorer.score(shard_of(None), STATE, sha256="")


def test_a_dry_run_leaves_out_what_needs_an_environment(scorer: Scorer) -> None:
    scorer.dry_run(shard_of(None), STATE)
