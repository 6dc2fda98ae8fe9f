"""A run's notices and a Prefect server that does not take them."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from prefect.logging import disable_run_logger
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs import notices
from mortal_steps.runs.notices import new_notice, note, unsent
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_tasks.notices import NoticeEvents, payload
from tests.support.run_info import run_info
from tests.support.webhook import PATIENCE_S, Webhook


@pytest.fixture
def run(tmp_path):
    run = Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path))
    run.update(status="running", ui_url="http://ui/flow-run/1")
    return run


@pytest.fixture
def server():
    """The one request of a Prefect server's API that is asked for here; it is not a Prefect server
    in anything else."""
    server = Webhook()
    settings = {PREFECT_API_URL: server.url, PREFECT_CLIENT_MAX_RETRIES: 0}
    with disable_run_logger(), temporary_settings(settings):
        yield server
    server.close()


def some_notice(run, **said):
    said = {"text": "it is slow", "advice": "look at it", **said}
    return new_notice(run, "mortal.step.slow", "warning", step=3, value=9.0, **said)


async def told(run, *, away=False):
    events = NoticeEvents(run, SimpleNamespace(lost=False, away=away))
    events.tell()
    await events.close()


async def test_what_is_new_is_told_once_in_one_request(run, server):
    first, second = some_notice(run), some_notice(run, which=2)
    note(run, first)
    note(run, second)
    await told(run)
    await told(run)
    [events] = server.received
    assert [event["id"] for event in events] == [first.id, second.id]
    resource = {"prefect.resource.id": "mortal.run.r", "mortal.level": "warning"}
    assert events[0]["resource"].items() >= resource.items()
    assert unsent(run.store) == []


async def test_what_no_server_takes_stays_to_be_told(run, server):
    note(run, some_notice(run))
    server.close()
    await told(run)
    assert len(unsent(run.store)) == 1


async def test_a_notice_counts_as_sent_once_the_server_has_answered(run, server):
    """A process that is killed before that sends it in vain, and the next one sends it again."""
    note(run, some_notice(run))
    server.answers.clear()
    killed = NoticeEvents(run, SimpleNamespace(lost=False, away=False))
    killed.tell()
    async with asyncio.timeout(PATIENCE_S):
        while not server.received:
            await asyncio.sleep(0.01)
    assert len(unsent(run.store)) == 1
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    server.answers.set()
    await told(run)
    first, again = server.received
    assert [event["id"] for event in first] == [event["id"] for event in again]
    assert unsent(run.store) == []


async def test_a_server_that_is_away_is_not_asked(run, server):
    note(run, some_notice(run))
    await told(run, away=True)
    assert server.received == []


async def test_what_is_old_is_no_news(run, server, monkeypatch):
    then = SimpleNamespace(time=lambda: time.time() - notices.STILL_NEWS_S - 1)
    with monkeypatch.context() as patch:
        patch.setattr(notices, "time", then)
        note(run, some_notice(run))
    await told(run)
    assert server.received == []


def test_a_message_says_run_step_number_link_and_what_to_do(run):
    said = payload(run, some_notice(run))
    assert said["subject"] == "r: step slow (step 3 of 9)"
    assert said["body"] == (
        "r, step 3 of 9: it is slow.\n\nWhat to do: look at it.\n\nhttp://ui/flow-run/1"
    )
    assert (said["value"], said["level"]) == (9.0, "warning")


def test_news_that_ask_for_nothing_say_nothing_of_it(run):
    assert "What to do" not in payload(run, some_notice(run, advice=""))["body"]
