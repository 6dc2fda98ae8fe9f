"""mortal_steps.rewards.judge: right scores through every fault, and no request too many.

Against a server that speaks as OpenAI's does.
"""

import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.errors import JudgeError
from mortal_steps.rewards.judge import environment
from mortal_steps.rewards.judge.ledger import Spending
from tests.support.judge_asked import BUSY, FOR_LONG, SCORES, TEXTS, ask, in_run, make
from tests.support.judge_stub import Answer, JudgeStub, by_length, judged
from tests.support.refused import refused

pytestmark = pytest.mark.usefixtures("run_dir")


def asked_twice(body: Any, seen: set[str], answer: Answer) -> Answer | None:
    """`answer` to the first request about each completion."""
    first = judged(body) not in seen
    seen.add(judged(body))
    return answer if first else None


def test_each_completion_has_its_own_score(stub: JudgeStub) -> None:
    assert ask(make(stub)) == SCORES
    assert sorted(stub.paid) == TEXTS


def test_the_judge_sees_the_rubric_the_range_and_the_columns(stub: JudgeStub) -> None:
    judge = make(
        stub,
        score_range=(1, 5),
        rubric="Is it {polite}?",
        prompt='{prompt} is {answer}, {"a": 1}\n<answer>\n{completion}\n</answer>',
        parameters={"temperature": 0.5, "seed": 3},
    )
    stub.score = lambda body: 4.5
    assert ask(judge, ["{prompt}"], answer=["2"], trainer_state=object()) == [4.5]
    (body,) = stub.requests
    system, user = body["messages"]
    assert "Is it {polite}?" in system["content"]
    assert "from 1 to 5" in system["content"]
    assert user["content"] == '1 + 1 is 2, {"a": 1}\n<answer>\n{prompt}\n</answer>'
    assert (body["model"], body["temperature"], body["seed"]) == ("m", 0.5, 3)
    assert body["response_format"]["type"] == "json_schema"


def test_its_reasons_are_logged_beside_the_completions(stub: JudgeStub) -> None:
    logged: dict[str, Any] = {}
    ask(make(stub), ["a", "bb", "a"], log_extra=logged.__setitem__)
    assert logged == {"judge_reason": ["1 long", "2 long", "1 long"]}
    assert make(stub).score("a", "1 + 1", log_extra=logged.__setitem__) == 1.0


def test_equal_questions_are_asked_once(stub: JudgeStub) -> None:
    assert ask(make(stub), ["aa", "b", "aa", "aa"]) == [2.0, 1.0, 2.0, 2.0]
    assert sorted(stub.paid) == ["aa", "b"]


@pytest.mark.parametrize(
    "fault",
    [
        BUSY,
        Answer(status=500),
        Answer(status=502, body="<html>", media_type="text/html"),
        Answer(status=429),
        Answer(status=408),
        Answer(status=409),
        Answer(status=425),
        Answer(hang_up=True),
        Answer(body="no JSON"),
        Answer(body="<html>", media_type="text/html"),
        Answer(body="[]"),
        Answer(body='{"choices": []}'),
        Answer(body='{"choices": [{"message": "text"}]}'),
        Answer(body="[" * 100_000),
        Answer(body='{"choices": [{"message": {}}], "usage": {"prompt_tokens": Infinity}}'),
    ],
)
def test_what_may_pass_is_asked_again(stub: JudgeStub, fault: Answer) -> None:
    seen: set[str] = set()
    stub.always = lambda body: asked_twice(body, seen, fault)
    assert ask(make(stub)) == SCORES
    assert sorted(stub.paid) == TEXTS
    assert len(stub.requests) == 2 * len(TEXTS)


@pytest.mark.parametrize(
    "damaged", [Answer(sends=0.5), Answer(headers={"Content-Encoding": "gzip"})]
)
def test_an_answer_that_arrives_damaged_is_asked_for_again(
    stub: JudgeStub, damaged: Answer
) -> None:
    stub.next.append(damaged)
    assert ask(make(stub), ["a"]) == [1.0]
    assert stub.paid == ["a", "a"], "which costs twice"


@pytest.mark.parametrize(
    "says",
    ["7 of 10", '{"score": 11}', "", '{"score": "0"}', '{"reason": "I must not judge this"}'],
)
def test_an_unusable_answer_is_asked_again_and_never_0(stub: JudgeStub, says: str) -> None:
    seen: set[str] = set()
    stub.always = lambda body: asked_twice(body, seen, Answer(says=says))
    assert ask(make(stub)) == SCORES
    assert len(stub.paid) == 2 * len(TEXTS)


def test_who_never_gives_a_score_has_failed_and_is_paid_three_times_in_all(
    stub: JudgeStub,
) -> None:
    stub.always = lambda body: Answer(says="fine!") if judged(body) == "bb" else None
    judge = make(stub)
    for _ in range(3):
        with refused(JudgeError, "1 of 6", "fine!"):
            ask(judge)
    assert stub.paid.count("bb") == 3
    assert len(stub.paid) == 3 + 5
    assert ask(judge, [text for text in TEXTS if text != "bb"]) == [0.0, 1.0, 3.0, 4.0, 5.0]
    assert len(stub.paid) == 8


def test_an_outage_ends_in_a_failure_within_the_time_of_the_call(
    stub: JudgeStub, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which each request for a question takes 10 s."""
    in_run(run_dir, call_timeout_s=100.0)
    asked = dict.fromkeys(TEXTS, 0)

    def busy(body: Any) -> Answer:
        asked[judged(body)] += 1
        return BUSY

    stub.always = busy
    monkeypatch.setattr(environment, "monotonic", lambda: 10.0 * max(asked.values()))
    with refused(JudgeError, "6 of 6", "503", "overloaded"):
        ask(make(stub))
    assert max(asked.values()) == 8, "a little is left of its time, to say so"


def test_an_outage_is_waited_out_where_the_call_may_take_longer(stub: JudgeStub) -> None:
    until = time.monotonic() + 1.0
    stub.always = lambda body: BUSY if time.monotonic() < until else None
    assert ask(make(stub, concurrency=1)) == SCORES
    assert until <= time.monotonic() < until + 5.0
    assert sorted(stub.paid) == TEXTS
    assert len(stub.requests) < 100


def test_what_was_answered_before_an_outage_is_not_paid_again(
    stub: JudgeStub,
) -> None:
    away = Answer(status=503, headers=FOR_LONG)
    stub.always = lambda body: away if len(stub.paid) >= 3 else None
    judge = make(stub, concurrency=1)
    with refused(JudgeError, "3 of 6"):
        ask(judge)
    stub.always = lambda body: None
    assert ask(judge) == SCORES
    assert sorted(stub.paid) == TEXTS


def test_a_judge_that_says_when_to_come_back_is_left_alone_until_then(stub: JudgeStub) -> None:
    stub.next.append(Answer(status=429, headers={"Retry-After": "0.7"}))
    began = time.monotonic()
    assert ask(make(stub), ["a"]) == [1.0]
    assert time.monotonic() - began >= 0.7


def test_it_may_say_so_by_a_date_of_whole_seconds(stub: JudgeStub) -> None:
    began = time.time()
    until = formatdate(began + 2, usegmt=True)
    stub.next.append(Answer(status=429, headers={"Retry-After": until}))
    assert ask(make(stub), ["a"]) == [1.0]
    assert time.time() - began >= 1.0


def test_delays_grow_up_to_the_longest(stub: JudgeStub) -> None:
    stub.next.extend([BUSY] * 9)
    began = time.monotonic()
    assert ask(make(stub), ["a"]) == [1.0]
    delays = [0.005 * 2**number for number in range(6)] + [0.2] * 3
    assert sum(delays) / 2 <= time.monotonic() - began < sum(delays) + 5.0


@pytest.mark.parametrize(
    "slow", [Answer(after_s=9.0), Answer(pause_s=0.1)], ids=["late", "trickling"]
)
def test_an_answer_that_is_late_or_trickles_is_given_up_and_asked_again(
    stub: JudgeStub, slow: Answer
) -> None:
    judge = make(stub, timeout=0.5)

    def slow_at_first(body: Any) -> Answer | None:
        if len(stub.requests) > 1:
            return None
        judge.term = judge.term.model_copy(update={"timeout": 60.0})  # of the requests to come
        return slow

    stub.always = slow_at_first
    assert ask(judge, ["a"]) == [1.0]
    assert len(stub.requests) == 2


@pytest.mark.parametrize("status", [400, 422])
def test_an_endpoint_that_refuses_schemas_is_asked_without_from_then_on(
    stub: JudgeStub, status: int
) -> None:
    refused = Answer(status=status, body="response_format is not supported")
    stub.always = lambda body: refused if "response_format" in body else None
    judge = make(stub, concurrency=1)
    assert ask(judge) == SCORES
    with_schema = ["response_format" in body for body in stub.requests]
    assert with_schema == [True] + [False] * len(TEXTS)


def test_a_refused_question_fails_alone_and_is_not_asked_twice(stub: JudgeStub) -> None:
    long = Answer(status=400, body="the context is too long")
    stub.always = lambda body: long if judged(body) == "ccc" else None
    judge = make(stub, concurrency=1)
    for _ in range(2):
        with refused(JudgeError, "1 of 6", "400", "the context is too long"):
            ask(judge)
    assert [judged(body) for body in stub.requests].count("ccc") == 2  # with a schema, without
    assert sorted(stub.paid) == [text for text in TEXTS if text != "ccc"]
    assert "response_format" in stub.requests[-1]


def test_a_resumed_run_pays_once_and_gets_the_same_scores(stub: JudgeStub, run_dir: Path) -> None:
    assert ask(make(stub, prices={"input": 10_000.0, "output": 50_000.0})) == SCORES
    stub.score = lambda body: 10.0 - by_length(body)
    in_run(run_dir)
    assert ask(make(stub)) == SCORES
    assert len(stub.paid) == len(TEXTS)
    spent = Spending(run_dir).so_far()
    assert (spent.answers, spent.prompt_tokens, spent.completion_tokens) == (6, 600, 120)
    assert spent.dollars == pytest.approx(6 * (1.0 + 1.0))


@pytest.mark.parametrize(
    "options",
    [
        {"rubric": "another"},
        {"score_range": (0, 9)},
        {"parameters": {"temperature": 1.0}},
        {"prompt": "<answer>\n{completion}\n</answer>"},
    ],
)
def test_another_question_is_asked_anew(
    stub: JudgeStub, run_dir: Path, options: dict[str, Any]
) -> None:
    ask(make(stub), ["a"])
    in_run(run_dir)
    ask(make(stub, **options), ["a"])
    assert stub.paid == ["a", "a"]


def test_a_dry_run_leaves_nothing_where_no_run_is(stub: JudgeStub, tmp_path: Path) -> None:
    in_run(tmp_path / "none")
    assert ask(make(stub)) == SCORES
    assert not (tmp_path / "none").exists()


def test_no_more_requests_run_at_a_time_than_allowed(stub: JudgeStub) -> None:
    stub.always = lambda body: Answer(after_s=0.02)
    assert ask(make(stub, concurrency=2)) == SCORES
    assert stub.most_at_a_time == 2


def test_a_completion_of_any_characters_is_judged(stub: JudgeStub) -> None:
    seen = ["half a pair \\ud83d", "\x00\x1b[31m", "\N{GRINNING FACE}</answer>"]
    stub.score = lambda body: float(seen.index(judged(body)))
    assert ask(make(stub), ["half a pair \ud83d", *seen[1:]]) == [0.0, 1.0, 2.0]


def test_a_judge_sees_all_turns_of_a_chat(stub: JudgeStub) -> None:
    chat = [
        {"role": "user", "content": "Guess."},
        {"role": "assistant", "content": "Four?"},
        {"role": "user", "content": "No."},
    ]
    judge = make(stub, prompt="{prompt}")
    judge(prompts=[chat, chat[:1]], completions=["a", "bb"])
    seen = sorted(body["messages"][-1]["content"] for body in stub.requests)
    assert seen == ["Guess.", "user: Guess.\n\nassistant: Four?\n\nuser: No."]
