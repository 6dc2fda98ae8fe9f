"""Benchmarks that ask the policy themselves, over HTTP, and score what it answers.

table     the kinds of a set of an evaluation: `[evaluation.sets.NAME]`
lm_eval   lm-evaluation-harness's tasks
server    the endpoint that a harness asks
handler   what loads and calls a harness, in a process of its own
running   a harness beside a rollout worker's engine: its answer, committed
"""
