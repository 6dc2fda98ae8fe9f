"""Compare with math-verify. What imports this brings SymPy along, and is ready for comparisons.

math-verify's own time limits are signals of the main thread that do not always come through; they
are off.
"""

import json
import logging
import os
import re
import signal
import sys
from typing import Any

from math_verify import parse, verify

from mortal_steps.rewards.extraction import extract_answer, without_thoughts
from mortal_steps.rewards.mathematics.verdicts import Comparison, Verdict

DELIMITER = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\boxed")
"""What marks a formula within a text."""
WORD = re.compile(r"(?:^|\s)[^\W\d_]{4,}[.,;:!?]?(?=\s|$)")
"""What a formula does not hold."""

WARM_UP = (
    ("1/2", r"The answer is $\frac{1}{2}$."),
    ("2", r"\boxed{1,234.5}"),
    (r"x^2+2x", r"$x(x+2)$"),
    (r"\{1, 2\}", r"$x=1$ or $x=2$"),
    (r"[0, 1)", r"$\sqrt{2}\pi$"),
    ("10", "so 3 + 4 = 7"),
)
"""Compared once at the start: the first use of a rule of the grammar is a slow one."""

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of its limits being off


def compare(comparison: Comparison) -> Verdict:
    """Whether what a completion says is equal to the right answer."""
    gold = parsed(comparison.gold)
    if not any(not isinstance(one, str) for one in gold):
        return Verdict.GOLD_UNPARSED
    answer = gold if comparison.answer is None else parsed_completion(comparison.answer)
    if not answer:
        return Verdict.UNPARSED
    return Verdict.EQUAL if verify(gold, answer, timeout_seconds=None) else Verdict.DIFFERENT


def parsed_completion(text: str) -> list[Any]:
    """Return the answer that a completion states: in its last `<answer>` tags or, without any,
    where math-verify finds it behind the thoughts."""
    spoken = without_thoughts(text)
    answer = extract_answer(spoken)
    return _parse(spoken) if answer is None else parsed(answer)


def parsed(answer: str) -> list[Any]:
    r"""Return an answer's possible meanings: SymPy expressions and its text. `2\sqrt{3}` alone is a
    formula; in a text, math-verify would find the number 2."""
    is_text = DELIMITER.search(answer) or WORD.search(answer)
    return _parse(answer if is_text else f"${answer}$")


def _parse(text: str) -> list[Any]:
    found: list[Any] = parse(text, parsing_timeout=None)
    return found


def main() -> None:
    """Print a verdict for each comparison of the sheet on stdin; SIGPROF ends the process when one
    has used up its CPU time."""
    asked = json.load(sys.stdin)
    for gold, answer in asked["sheet"]:
        signal.setitimer(signal.ITIMER_PROF, asked["cpu_s"])
        verdict = compare(Comparison(gold=gold, answer=answer))
        os.write(1, f"{verdict.name}\n".encode())


for _gold, _answer in WARM_UP:
    compare(Comparison(gold=_gold, answer=_answer))
