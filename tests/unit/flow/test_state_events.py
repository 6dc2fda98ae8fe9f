"""A run's notices as Prefect events."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from prefect.events import Event

from mortal_steps.config import RunConfig
from mortal_steps.runs import notices
from mortal_steps.runs.notices import new_notice, note, unsent
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_tasks import notices as events
from mortal_tasks.notices import payload
from mortal_tasks.reporter import PrefectReporter
from tests.support.run_info import run_info


@pytest.fixture
def run(tmp_path):
    run = Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path))
    run.update(status="running", ui_url="http://ui/flow-run/1")
    return run


@pytest.fixture
def sent(monkeypatch):
    """The events that Prefect's client is given; `test_notices.py` sends some to a server."""
    sent = []

    def emit(**fields):
        sent.append(Event(**fields))
        return sent[-1]

    monkeypatch.setattr(events, "emit_event", emit)
    return sent


def some_notice(run, **said):
    said = {"text": "it is slow", "advice": "look at it", **said}
    return new_notice(run, "mortal.step.slow", "warning", step=3, value=9.0, **said)


def tell(run, *, away=False):
    reporter = PrefectReporter(run, SimpleNamespace(away=away))
    reporter.tell()
    return reporter


def test_what_is_new_is_told_once(run, sent):
    first, second = some_notice(run), some_notice(run, which=2)
    note(run, first)
    note(run, second)
    tell(run)
    tell(run)
    assert [str(event.id) for event in sent] == [first.id, second.id]
    resource = {"prefect.resource.id": "mortal.run.r", "mortal.level": "warning"}
    assert sent[0].resource.root.items() >= resource.items()
    assert unsent(run.store) == []


def test_while_the_server_is_away_notices_stay_to_be_told(run, sent):
    note(run, some_notice(run))
    server = SimpleNamespace(away=True, check=lambda: None)
    reporter = PrefectReporter(run, server)
    reporter.tell()
    asyncio.run(reporter.ready())
    assert sent == []
    assert len(unsent(run.store)) == 1
    server.away = False
    asyncio.run(reporter.ready())
    assert len(sent) == 1


def test_a_server_that_does_not_know_the_flow_run_is_told_nothing(run, monkeypatch):
    note(run, some_notice(run))
    monkeypatch.setattr(events, "emit_event", lambda **_: None)
    tell(run)
    assert len(unsent(run.store)) == 1


def test_what_is_old_is_no_news(run, sent, monkeypatch):
    then = SimpleNamespace(time=lambda: time.time() - notices.STILL_NEWS_S - 1)
    with monkeypatch.context() as patch:
        patch.setattr(notices, "time", then)
        note(run, some_notice(run))
    tell(run)
    assert sent == []


def test_a_message_says_run_step_number_link_and_what_to_do(run):
    said = payload(run, some_notice(run))
    assert said["subject"] == "r: step slow (step 3 of 9)"
    assert said["body"] == (
        "r, step 3 of 9: it is slow.\n\nWhat to do: look at it.\n\nhttp://ui/flow-run/1"
    )
    assert (said["value"], said["level"]) == (9.0, "warning")


def test_news_that_ask_for_nothing_say_nothing_of_it(run):
    assert "What to do" not in payload(run, some_notice(run, advice=""))["body"]
