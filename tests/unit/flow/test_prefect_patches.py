"""The private parts of Prefect that MORTAL uses, and what it makes of them."""

import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.concurrency import _leases
from prefect.events import Event
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.utilities import engine

from mortal_tasks import prefect_patches


@pytest.fixture
def answers(monkeypatch):
    """Status codes with which a server answers, one after the other; a client of it."""
    codes = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(codes.pop(0))
            self.send_header("content-length", "0")
            self.send_header("retry-after", "0")  # its client waits 2 s before it says so
            self.end_headers()

        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(prefect_patches, "RETRY_S", 0.01)
    url = f"http://127.0.0.1:{server.server_port}/api"
    once = {PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(once), get_client(sync_client=True) as client:
        yield codes, client
    server.shutdown()
    server.server_close()


def test_a_server_that_is_away_is_asked_again_until_it_renews(answers):
    codes, client = answers
    codes += [503, 503, 204]
    assert prefect_patches.renew(client, uuid4(), 300, threading.Event())
    assert codes == []


def test_a_place_that_is_lost_is_put_up_with(answers):
    codes, client = answers
    codes += [410]
    assert not prefect_patches.renew(client, uuid4(), 300, threading.Event())


def test_a_flow_that_has_ended_renews_nothing(answers):
    _, client = answers
    ended = threading.Event()
    ended.set()
    assert not prefect_patches.renew(client, uuid4(), 300, ended)


def test_prefect_renews_leases_in_this_way(answers, monkeypatch):
    """Its loop calls the function that `keep_slot` replaces."""
    codes, _ = answers
    codes += [410]
    monkeypatch.setattr(_leases, "_renew_concurrency_lease_with_retries", prefect_patches.renew)
    _leases._lease_renewal_loop(uuid4(), 300, threading.Event())
    assert codes == []


def test_events_that_wait_for_a_server_can_be_dropped(monkeypatch):
    """Prefect's worker has a queue, and sends what is in it."""
    worker = EventsWorker(PrefectEventsClient, ())  # which is never started
    monkeypatch.setattr(EventsWorker, "instance", lambda: worker)
    event = Event(event="x", resource={"prefect.resource.id": "x"})
    for _ in range(3):
        worker.send(event)
    assert worker._queue.qsize() == 3
    prefect_patches.drop_events()
    assert worker._queue.empty()
    worker.send(event)
    prefect_patches.drop_events(after_s=0.1)
    assert list(worker._queue.queue) == [None], "else its thread would wait for ever"


def test_prefect_notes_a_cancellation_while_our_handler_of_sigterm_is_installed():
    """It does so where this function says that its own is."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        assert not engine.is_prefect_sigterm_handler_installed()
        with prefect_patches.sigterm_is_ours():
            assert engine.is_prefect_sigterm_handler_installed()
        assert not engine.is_prefect_sigterm_handler_installed()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not prefect_patches.was_cancelled()
