"""`mortal test-rollout`: completions below their prompts, and how fast they were sampled."""

from __future__ import annotations

import json

import typer

from mortal.terminal.samples import block
from mortal_steps.report.samples import prompt_text
from mortal_steps.rollout.trial import SampledProblems


def show_sampled(sampled: SampledProblems, *, as_json: bool) -> None:
    """Every completion, and the pace of all together."""
    if as_json:
        typer.echo(json.dumps(_record(sampled), indent=1))
        return
    for group in sampled.groups:
        typer.echo()
        block("prompt", prompt_text(group.problem.prompt))
        for completion in group.completions:
            block("completion", completion.text)
    typer.echo(
        f"\n{sampled.num_completions} completions, {sampled.num_tokens:,} tokens in "
        f"{sampled.sample_s:.1f} s: {sampled.tokens_per_s:,.0f} tokens/s "
        f"(ready to sample after {sampled.start_s:.1f} s)"
    )


def _record(sampled: SampledProblems) -> dict[str, object]:
    return {
        "completions": [
            {
                "prompt": group.problem.prompt,
                "completion": completion.text,
                "tokens": completion.num_sampled,
                "finish_reason": completion.finish_reason,
            }
            for group in sampled.groups
            for completion in group.completions
        ],
        "tokens": sampled.num_tokens,
        "tokens_per_s": sampled.tokens_per_s,
        "start_s": sampled.start_s,
        "sample_s": sampled.sample_s,
    }
