"""`mortal show --samples`: completions with their prompts and scores."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mortal.terminal.console import console
from mortal.terminal.display import line
from mortal_steps.report.printable import printable
from mortal_steps.report.samples import Sample, prompt_text
from mortal_steps.report.units import number


def show_samples(samples: Sequence[Sample]) -> None:
    """Each under a heading with its scores."""
    for sample in samples:
        scores = ", ".join(f"{name} {number(value)}" for name, value in sample.rewards.items())
        about = f"  {sample.problem_id}, reward {number(sample.reward)} ({scores})"
        console.print()
        console.print(
            Text.assemble((f"{sample.kind} of step {sample.step}", "bold"), printable(about))
        )
        for why in sample.why:
            line("failed", why)
        block("prompt", prompt_text(sample.prompt))
        block("completion", sample.text)


def block(name: str, text: str) -> None:
    """A text beside its name, line below line."""
    first, *rest = text.splitlines() or [""]
    line(name, first)
    for more in rest:
        line("", more)
