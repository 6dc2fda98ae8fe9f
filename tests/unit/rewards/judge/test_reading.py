"""mortal_steps.rewards.judge.question: what is no score is not taken for one."""

import pytest

from mortal_steps.rewards.judge.question import Grade, UnusableAnswerError, read_grade


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"reason": "fine", "score": 7}', 7.0),
        ('{"reason": "fine", "score": 0}', 0.0),
        (' \n{"score": 10.0, "reason": "fine"}\n', 10.0),
        ('```json\n{"reason": "fine", "score": 2.5}\n```', 2.5),
        ('```\n{"reason": "fine", "score": 2.5}```', 2.5),
    ],
)
def test_a_grade_is_read(text: str, score: float) -> None:
    assert read_grade(text, (0, 10)) == Grade(score=score, reason="fine")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " \n",
        "7",
        "[7]",
        "I'd say 7 out of 10.",
        'Sure! {"score": 7}',
        '{"score": 7} and {"score": 8}',
        '{"score": 7',
        '{"scores": 7}',
        '{"score": "7"}',
        '{"score": true}',
        '{"score": null}',
        '{"score": NaN}',
        '{"score": Infinity}',
        '{"score": 1e999}',
        '{"score": 1' + "0" * 400 + "}",
        '{"score": -0.5}',
        '{"score": 10.1}',
        "[" * 100_000,
        ["7"],
    ],
)
def test_anything_else_is_no_score(text: object) -> None:
    with pytest.raises(UnusableAnswerError):
        read_grade(text, (0, 10))
