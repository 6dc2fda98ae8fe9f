"""Completions with their prompts: those of a run with scores, those of a trial with their pace."""

from collections.abc import Sequence

import typer
from rich.text import Text

from mortal.terminal.console import console
from mortal.terminal.display import line
from mortal.terminal.output import print_json
from mortal_steps.report.dialogue import completion_text, prompt_of, prompt_text
from mortal_steps.report.printable import printable
from mortal_steps.report.samples import Sample
from mortal_steps.report.units import counted, number
from mortal_steps.rollout.trial import SampledProblems


def show_samples(samples: Sequence[Sample]) -> None:
    """Print each under a heading with its scores."""
    for sample in samples:
        scores = ", ".join(f"{name} {number(value)}" for name, value in sample.rewards.items())
        reward = f", reward {number(sample.reward)} ({scores})" if sample.rewards else ""
        about = f"  {sample.problem_id}{reward}"
        console.print()
        console.print(
            Text.assemble((f"{sample.kind} of step {sample.step}", "bold"), printable(about))
        )
        for why in sample.why:
            line("failed", why)
        block("prompt", prompt_text(sample.prompt))
        block("completion", sample.text)


def block(name: str, text: str) -> None:
    first, *rest = text.splitlines() or [""]
    line(name, first)
    for more in rest:
        line("", more)


def show_sampled(sampled: SampledProblems, *, as_json: bool) -> None:
    """Print every completion, and the pace of all together."""
    if as_json:
        print_json(_record(sampled))
        return
    for group in sampled.groups:
        typer.echo()
        shown = None
        for completion in group.completions:
            asked = prompt_text(prompt_of(group.problem, completion))
            if asked != shown:
                block("prompt", asked)
                shown = asked
            block("completion", completion_text(completion))
    typer.echo(
        f"\n{counted(sampled.num_completions, 'completion')}, "
        f"{counted(sampled.num_tokens, 'token')} in {sampled.sample_s:.1f} s: "
        f"{sampled.tokens_per_s:,.0f} tokens/s (ready to sample after {sampled.start_s:.1f} s)"
    )


def _record(sampled: SampledProblems) -> dict[str, object]:
    return {
        "completions": [
            {
                "prompt": prompt_of(group.problem, completion),
                "completion": completion.text,
                **({"messages": completion.messages} if completion.messages else {}),
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
