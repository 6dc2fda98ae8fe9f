"""Sampling completions with exactly the policy version that is asked for.

plan             what such a worker is given of a run
worker           samples shards of a step: `RolloutWorker`
committed        shards that were sampled before
engines          inference engines: vLLM, transformers
episodes         how completions come about, in one turn or in several
weight_sync      how an engine loads a version, and proves that it has done so
http             the policy for OpenAI's and vLLM's clients
prompts          prompts as token ids
trial            completions outside of a run
"""
