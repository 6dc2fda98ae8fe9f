"""Check that tokens are sampled in a way that the trainer can compute again.

TRL computes log-probabilities over the whole vocabulary at `rollout.temperature`. What a run
records is the same, so that the two differ where weights or engines do, and nowhere else. vLLM has
settings with which it reports something else, or samples at another temperature.
"""

from __future__ import annotations

from mortal_steps.errors import ConfigError
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.rollout.engines.table import ALWAYS_THERE

SET_BY_MORTAL = ("logprobs_mode", "worker_extension_cls")
"""Options of vLLM on which it depends which log-probabilities are recorded."""
DRAFTING = ("speculative_config", "spec_method", "spec_model")
"""Options each of which lets vLLM draft tokens."""
MASK = "off_policy_mask_threshold"
"""Option of TRL's that reads what is recorded, besides the importance-sampling correction."""


def check_sampled_alike(plan: TrainerPlan) -> None:
    """Raise `ConfigError` for a setting that the trainer would not compute with."""
    rollout, kind = plan.rollout, plan.rollout.engine_kind
    name, options = rollout.engine or ALWAYS_THERE, rollout.engine_options
    if rollout.temperature < kind.lowest_temperature:
        raise ConfigError(
            f"rollout.temperature = {rollout.temperature:g}: {name} samples at no lower one than "
            f"{kind.lowest_temperature:g}, and the trainer would compute with the lower one; raise "
            f"it, or use rollout.engine = {ALWAYS_THERE!r}"
        )
    if name != "vllm":
        return
    for option in SET_BY_MORTAL:
        if option in options:
            raise ConfigError(
                f"rollout.engine_options.{option} is set by MORTAL, which needs it for the "
                "log-probabilities that a run records; leave it out"
            )
    if "max_model_len" in options:
        raise ConfigError(
            f"rollout.engine_options.max_model_len = {options['max_model_len']!r}: vLLM would cut "
            "completions short there, and prompts are measured against model.max_model_len; set "
            "that instead"
        )
    filters = {"top_p": rollout.top_p < 1, "top_k": rollout.top_k, "min_p": rollout.min_p}
    chosen = next((key for key, acts in filters.items() if acts), None)
    drafting = next((option for option in DRAFTING if options.get(option)), None)
    if chosen and drafting:
        raise ConfigError(
            f"rollout.{chosen} = {getattr(rollout, chosen)!r} beside "
            f"rollout.engine_options.{drafting}: of tokens that were drafted, vLLM reports "
            f"log-probabilities among those that {chosen} leaves, and the trainer computes them "
            "over the whole vocabulary; leave one of the two out"
        )
    reads = plan.corrects_importance or plan.training.trl.get(MASK) is not None
    if options.get("logits_processors") and reads:
        raise ConfigError(
            "rollout.engine_options.logits_processors: the trainer knows nothing of them, and "
            "would take what they change for a difference of weights; leave it out, or set "
            f"training.importance_sampling_correction = false, without training.trl.{MASK}"
        )
