from mortal_steps.config import RewardsConfig
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.scoring.scorer import Scorer
from mortal_steps.types import (
    Completion,
    Episode,
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    Problem,
)


def completion(episode):
    return Completion(
        token_ids=[3],
        logprobs=[-0.5],
        text="a",
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
        episode=episode,
    )


def test_a_shard_with_no_reward_but_its_environments_is_scored():
    episodes = [
        Episode(stop="done", scores={"Shop": 1.0}),
        Episode(stop="failed", failure="tool add: no answer within 60 s"),
    ]
    group = GeneratedGroup(
        problem=Problem(id="train-0", prompt="abc"),
        prompt_ids=[3],
        completions=[completion(each) for each in episodes],
    )
    shard = GeneratedShard(step=0, shard=0, policy_version=PolicyVersion(0), groups=[group])
    rewards = RewardsConfig(terms=({"type": "get_reward", "environment": "Shop"},))
    scorer = Scorer([], ["Shop"], rewards)
    scored, seconds = scorer.score(shard, TrainerState(global_step=0, max_steps=1), sha256="")
    assert scored.rewards == [[{"Shop": 1.0}, {"Shop": None}]]
    assert [failure.message for failure in scored.failures] == [episodes[1].failure]
    assert seconds == {}
