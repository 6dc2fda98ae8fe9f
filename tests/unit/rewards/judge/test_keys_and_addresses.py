"""Judges whose settings are wrong: the setting is named, and a key is told to nobody."""

from pathlib import Path

import pytest

from mortal.rewards.examples import LLMJudgeEnvironment
from mortal_steps.errors import ConfigError, JudgeError
from mortal_steps.rewards.judge.ledger import FOLDER
from tests.support.judge_asked import FOR_LONG, SCORES, ask, make
from tests.support.judge_stub import Answer, JudgeStub
from tests.support.refused import refused

pytestmark = pytest.mark.usefixtures("run_dir")


def test_a_wrong_key_stops_at_once_and_is_not_told(
    monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with JudgeStub(key="sk-other") as stub:
        judge = make(stub, api_key_env="MY_KEY", concurrency=1)
        with refused(ConfigError, "api_key_env = 'MY_KEY'", "401") as raised:
            ask(judge)
        assert len(stub.requests) == 1
        assert "sk-secret" not in str(raised.value)
        stub.key = "sk-secret"
        assert ask(judge) == SCORES
    for path in (run_dir / FOLDER).iterdir():
        assert "sk-secret" not in path.read_text()


def test_an_endpoint_that_repeats_the_key_does_not_bring_it_into_a_message(
    stub: JudgeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    stub.always = lambda body: Answer(status=503, body="no room for sk-secret", headers=FOR_LONG)
    with refused(JudgeError, "***"):
        ask(make(stub, api_key_env="MY_KEY"))


@pytest.mark.parametrize("key", ["sk-secret\nX: y", "\N{LEFT DOUBLE QUOTATION MARK}sk-secret"])
def test_a_key_that_no_header_can_have_is_named_and_not_told(
    stub: JudgeStub, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    with refused(ConfigError, "api_key_env = 'MY_KEY'") as raised:
        ask(make(stub, api_key_env="MY_KEY"))
    assert "sk-secret" not in str(raised.value)
    assert not stub.requests


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_missing_is_asked_for(stub: JudgeStub, status: int) -> None:
    stub.always = lambda body: Answer(status=status)
    with refused(ConfigError, "api_key_env"):
        ask(make(stub))


def test_a_wrong_model_stops_at_once(stub: JudgeStub) -> None:
    stub.always = lambda body: Answer(status=404, body="no model m")
    with refused(ConfigError, "model = 'm'", "404"):
        ask(make(stub, concurrency=1))
    assert len(stub.requests) == 1


def test_a_variable_that_is_not_there_is_named_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with refused(ConfigError, "api_key_env = 'OPENAI_API_KEY'"):
        LLMJudgeEnvironment(model="gpt-4o-mini", score_range=(0, 10))


def test_the_key_for_openai_is_sent_to_nobody_else(
    stub: JudgeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    stub.key = "sk-secret"
    with refused(ConfigError, "api_key_env"):
        ask(make(stub))


def test_the_address_and_the_key_for_openais_own_client_are_taken_together(
    stub: JudgeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert ask(LLMJudgeEnvironment("m")) == SCORES
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    stub.key = "sk-secret"
    assert ask(LLMJudgeEnvironment("another")) == SCORES
    assert ask(LLMJudgeEnvironment("third", api_key_env=None, prices=None)) == SCORES


def test_an_address_with_and_without_a_slash_is_asked_once(stub: JudgeStub) -> None:
    ask(make(stub))
    asked = len(stub.requests)
    assert ask(make(stub, base_url=f"{stub.url}/")) == SCORES
    assert len(stub.requests) == asked


def test_an_address_with_a_key_in_it_is_refused_and_not_told() -> None:
    with refused(ConfigError, "base_url") as raised:
        LLMJudgeEnvironment("m", base_url="http://me:sk-secret@host/v1")
    assert "sk-secret" not in str(raised.value)


@pytest.mark.parametrize("address", ["host/v1", "ftp://host/v1", "https:///v1"])
def test_what_is_no_address_is_named_before_anything_is_asked(address: str) -> None:
    with refused(ConfigError, f"base_url = '{address}'"):
        LLMJudgeEnvironment("m", base_url=address)


def test_a_range_without_room_is_refused(stub: JudgeStub) -> None:
    with refused(ValueError, "score_range = [5.0, 5.0]"):
        make(stub, score_range=(5, 5))


@pytest.mark.parametrize("status", [301, 308, 405])
def test_an_address_that_answers_no_such_request_stops_at_once(
    stub: JudgeStub, status: int
) -> None:
    stub.always = lambda body: Answer(status=status, headers={"Location": "https://host/"})
    with refused(ConfigError, "base_url = ", f"{status}"):
        ask(make(stub, concurrency=1))
    assert len(stub.requests) == 1


def test_a_column_that_is_not_there_is_named(stub: JudgeStub) -> None:
    with refused(ValueError, "{answr}", "answer, completion, prompt"):
        ask(make(stub, prompt="{answr}"), ["a"], answer=["2"])
    assert not stub.requests
