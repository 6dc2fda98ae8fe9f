"""mortal_steps.rewards.mathematics.comparing: what is taken for the answer, and for equal."""

import threading
from pathlib import Path

import pytest

from mortal_steps.rewards.mathematics.comparing import compare
from mortal_steps.rewards.mathematics.verdicts import Comparison, Verdict

EQUAL, DIFFERENT, UNPARSED = Verdict.EQUAL, Verdict.DIFFERENT, Verdict.UNPARSED


@pytest.mark.parametrize(
    ("gold", "said", "verdict"),
    [
        ("1/2", r"The answer is $\frac{1}{2}$.", EQUAL),
        ("1/2", r"so \boxed{0.5}", EQUAL),
        (r"2\sqrt{3}", r"\boxed{\sqrt{12}}", EQUAL),
        (r"2\sqrt{3}", "<answer>2</answer>", DIFFERENT),
        ("2", r"<answer>2\sqrt{3}</answer>", DIFFERENT),
        ("1,234", r"\boxed{1234}", EQUAL),
        (r"\$18", "that makes $18$ dollars", EQUAL),
        ("18", "<answer>18 dollars</answer>", EQUAL),
        ("18 dollars", "<answer>18</answer>", EQUAL),
        (r"\{1, 2\}", r"$x = 2$ or $x = 1$", EQUAL),
        ("x^2 + 2x", "<answer>x(x+2)</answer>", EQUAL),
        ("5", r"$\boxed{4}$ or rather $\boxed{5}$", EQUAL),
        ("4, 5", r"\boxed{5} and \boxed{4}", EQUAL),  # as math-verify has it
        ("5", r"<think>\boxed{4}</think> \boxed{5}", EQUAL),
        ("4", r"<think>\boxed{4}</think> \boxed{5}", DIFFERENT),
        ("4", r"<think>so \boxed{4}", UNPARSED),
        ("4", "<answer>4</answer> wait, is it 5?", EQUAL),
        ("4", "<answer>none of them</answer> 4", UNPARSED),
        ("4", "I do not know", UNPARSED),
        ("4", "", UNPARSED),
        ("no solution", "4", Verdict.GOLD_UNPARSED),
        (r"\frac{1}{", "4", Verdict.GOLD_UNPARSED),
        ("4", None, EQUAL),
    ],
)
def test_answers_are_found_and_compared(gold: str, said: str | None, verdict: Verdict) -> None:
    assert compare(Comparison(gold=gold, answer=said)) is verdict


def test_it_needs_no_signal_and_so_no_main_thread() -> None:
    found: list[Verdict] = []
    comparison = Comparison(gold="1/2", answer="$0.5$")
    thread = threading.Thread(target=lambda: found.append(compare(comparison)))
    thread.start()
    thread.join()
    assert found == [EQUAL]


@pytest.mark.parametrize("call", ["open({!r}, 'w')", "__import__('os').mkdir({!r})"])
def test_an_answer_is_not_run_as_code(call: str, tmp_path: Path) -> None:
    target = tmp_path / "executed"
    code = call.format(str(target))
    for said in (
        code,
        f"${code}$",
        f"\\boxed{{{code}}}",
        f"<answer>1+{code}</answer>",
        f"(1)+{code}",
    ):
        compare(Comparison(gold="1", answer=said))
    assert not target.exists()
