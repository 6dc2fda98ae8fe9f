"""Requests to the server that may fail."""

import json
import logging

import pytest
from prefect.exceptions import ObjectNotFound

from mortal_tasks import server_watch as module
from mortal_tasks.server_watch import best_effort


@pytest.fixture(autouse=True)
def log(monkeypatch, caplog):
    monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("test"))
    return caplog


async def test_the_page_of_a_proxy_ends_no_run(log):
    async def ask():
        return json.loads("<html>502 Bad Gateway</html>")

    assert await best_effort(ask(), "the report is not shown") is None
    assert "the report is not shown: Expecting value" in log.text


async def test_what_somebody_has_deleted_ends_no_run(log):
    async def ask():
        raise ObjectNotFound(KeyError("no such artifact"))

    assert await best_effort(ask(), "not shown") is None


async def test_a_fault_of_our_own_is_raised():
    async def ask():
        raise KeyError("report")

    with pytest.raises(KeyError):
        await best_effort(ask(), "not shown")


async def test_an_answer_is_returned():
    async def ask():
        return 5

    assert await best_effort(ask(), "not shown") == 5
