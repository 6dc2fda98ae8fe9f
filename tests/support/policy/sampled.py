"""What an engine sampled, as a batch to train on with the very weights that sampled it."""

from mortal_steps.types import Completion, Problem, Rollout, RolloutBatch, RolloutGroup
from tests.support.policy.parity import run_stepped
from tests.support.policy.rollouts import REWARD_FUNCTIONS, make_config

GENERATIONS = 2
RATIO = "sampling/importance_sampling_ratio/"
DIFFERENCE = "sampling/sampling_logp_difference/max"


def batch_of(prompts_ids, sampled):
    """Return groups of two; `sampled` are the tokens, logprobs and finish reason of each prompt."""
    rollouts = []
    for prompt_ids, (token_ids, logprobs, reason) in zip(prompts_ids, sampled, strict=True):
        completion = Completion(
            token_ids=token_ids,
            logprobs=logprobs,
            text="",
            finish_reason=reason,
            seed=1,
            policy_version=0,
            prompt_ids=prompt_ids,
        )
        scores = {each.__name__: each([token_ids])[0] for each in REWARD_FUNCTIONS}
        rollouts.append(Rollout(completion=completion, rewards=scores, reward=1.0))
    groups = [
        RolloutGroup(
            problem=Problem(id=f"p{first}", prompt="abc"),
            prompt_ids=prompts_ids[first],
            rollouts=rollouts[first : first + GENERATIONS],
        )
        for first in range(0, len(rollouts), GENERATIONS)
    ]
    return RolloutBatch(step=0, policy_version=0, groups=groups)


def corrected_and_not(model_path, tmp_path, prompts_ids, sampled, params, **training):
    """Return what TRL logs of one step with the correction of importance, and of one without."""
    filters = {name: getattr(params, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    found = []
    for corrects in (True, False):
        config = make_config(
            rollout=filters,
            importance_sampling_correction=corrects,
            batch_size=len(prompts_ids) // GENERATIONS,
            num_generations=GENERATIONS,
            max_completion_length=params.max_tokens,
            learning_rate=0.0,
            **training,
        )
        batch = batch_of(prompts_ids, sampled)
        found += run_stepped(config, str(model_path), tmp_path / str(corrects), [batch]).metrics
    return found
