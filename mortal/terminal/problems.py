"""`mortal problems`: how often the policy solved each problem of a run."""

from collections.abc import Sequence

from rich.text import Text

from mortal.terminal.console import console, in_columns
from mortal_steps.report.dialogue import prompt_text
from mortal_steps.report.printable import printable
from mortal_steps.report.problems import ProblemHistory, RunProblems, Verdict
from mortal_steps.report.units import counted, number

HEADING = ("problem", "visits", "reward", "steps", "over time", "prompt")
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 16
PROMPT_CHARS = 40
IN_WORDS: dict[Verdict, str] = {
    "solved": "solved at each visit",
    "unsolved": "never solved",
    "worse": "far worse now than they were",
    "between": "between",
    "never": "without a reward",
}


def show_problems(found: RunProblems, chosen: Sequence[ProblemHistory]) -> None:
    """Print what came of all problems, then a line for each of the chosen ones."""
    steps = f"steps {found.first_step} to {found.last_step}"
    seen = f"{found.num_sampled:,} of {counted(found.num_problems, 'problem')} sampled in {steps}"
    shares = [
        f"{count:,} {IN_WORDS[verdict]}" for verdict in IN_WORDS if (count := found.count(verdict))
    ]
    console.print(Text(f"{seen}: {', '.join(shares)}"))
    console.print(Text(f"rewards from {number(found.low)} to {number(found.high)}", style="dim"))
    if not chosen:
        return
    heading, *lines = in_columns([HEADING, *map(_cells, chosen)])
    console.print(Text(heading, style="bold"))
    for line in lines:
        console.print(Text(printable(line)))


def _cells(problem: ProblemHistory) -> tuple[str, ...]:
    prompt = " ".join(prompt_text(problem.prompt).split())
    if len(prompt) > PROMPT_CHARS:
        prompt = f"{prompt[: PROMPT_CHARS - 1]}…"
    steps, rewards = problem.steps, problem.rewards
    mean = number(sum(rewards) / len(rewards)) if rewards else "-"
    when = f"{steps[0]}-{steps[-1]}" if len(steps) > 1 else "".join(map(str, steps))
    return problem.problem_id, str(len(steps)), mean, when or "-", _bars(problem.rates), prompt


def _bars(rates: Sequence[float]) -> str:
    """Draw the last visits, a character each."""
    return "".join(BARS[round(rate * (len(BARS) - 1))] for rate in rates[-MOST_BARS:])
