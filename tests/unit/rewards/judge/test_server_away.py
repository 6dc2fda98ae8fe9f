"""mortal_steps.rewards.judge.shared_limits where the server of the limits is away, or strange."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from mortal_steps.rewards.judge.limits import Allowed, NoRoomError
from mortal_steps.rewards.judge.shared_limits import (
    LEFT_ALONE_S,
    Orchestrator,
    SharedLimits,
    limit_name,
    orchestrator,
)
from tests.support.clock import FakeClock
from tests.support.judge_stub import Answer, JudgeStub

NOBODY = "http://127.0.0.1:9/api"
ALL = Allowed(concurrency=1, requests_per_minute=2, tokens_per_minute=1000)


def limits(url: str, time: FakeClock, sharing: int = 1) -> SharedLimits:
    server = Orchestrator(api_url=url, headers={})
    return SharedLimits(ALL, time.clock, server, model="m", base_url="http://h/v1", sharing=sharing)


def test_a_server_that_is_away_stops_nobody_and_the_limits_of_the_process_hold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = FakeClock()
    shared = limits(NOBODY, time)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with shared.permit(10, until=50):
                pass
        with pytest.raises(NoRoomError, match="requests_per_minute"), shared.permit(10, until=50):
            pass
    assert time.now() == 0
    assert len(caplog.records) == 1, "it is left alone for a while"


def test_while_the_server_is_away_processes_of_a_run_have_a_part_of_the_limits_each() -> None:
    time = FakeClock()
    shared = limits(NOBODY, time, sharing=2)
    with shared.permit(10, until=50):
        pass
    with pytest.raises(NoRoomError, match="requests_per_minute"), shared.permit(10, until=50):
        pass


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(status=status) for status in (401, 404, 500)),
        Answer(body="<html>Please log in</html>"),
        Answer(body="[]"),
        Answer(body='{"limit": 1}'),
    ],
    ids=str,
)
def test_a_server_that_refuses_is_left_alone_for_a_while_and_asked_again(answer: Answer) -> None:
    time = FakeClock()
    with JudgeStub() as stub:
        stub.always = lambda body: answer
        shared = limits(stub.url, time)
        for after in (0.0, 1.0, LEFT_ALONE_S):
            time.sleep(after)
            with shared.permit(10, until=1000):
                pass
        asked_once = 1 if answer.body != '{"limit": 1}' else 6  # it has limits, but no places
        assert len(stub.requests) == 2 * asked_once


def test_a_wait_that_a_proxy_gives_as_a_date_is_a_second() -> None:
    time, one = FakeClock(), Answer(body='{"limit": 1, "lease_id": "1"}')
    busy = Answer(status=423, body="", headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    with JudgeStub() as stub:
        stub.always = lambda body: one
        stub.next += [one, one, one, busy]
        with limits(stub.url, time).permit(10, until=1000):
            assert time.now() == 1.0


def test_an_address_and_credentials_come_from_different_places() -> None:
    def headers(environment: Mapping[str, str]) -> Any:
        server = orchestrator("http://h/api/", environment)
        assert server is not None
        assert server.api_url == "http://h/api"
        assert "secret" not in repr(server)
        return dict(server.headers)

    assert orchestrator(None, {"PREFECT_API_KEY": "secret"}) is None
    assert headers({}) == {}
    assert headers({"PREFECT_API_KEY": "secret"}) == {"Authorization": "Bearer secret"}
    assert headers({"PREFECT_API_AUTH_STRING": "a:secret"}) == {
        "Authorization": "Basic YTpzZWNyZXQ="
    }


def test_names_of_limits_hold_nothing_that_prefect_refuses() -> None:
    name = limit_name("org/model<a>&b%", "https://api.example.com/v1")
    assert name == "mortal-judge org-model-a--b- at api.example.com"
