"""A flow run outlives the lease of its place among the runs of its deployment."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from uuid import uuid4

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.concurrency import _leases
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from mortal_tasks import deployment_slot as slot


@pytest.fixture
def answers(monkeypatch):
    """Status codes with which a server answers, one after the other; a client of it."""
    codes = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(codes.pop(0))
            self.send_header("content-length", "0")
            self.end_headers()

        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(slot, "RETRY_S", 0.01)
    url = f"http://127.0.0.1:{server.server_port}/api"
    once = {PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(once), get_client(sync_client=True) as client:
        yield codes, client
    server.shutdown()
    server.server_close()


@pytest.fixture
def ours(monkeypatch):
    """The lease of this flow run."""
    lease_id = uuid4()
    monkeypatch.setattr(slot, "_ours", {lease_id})
    return lease_id


def test_a_server_that_is_away_is_asked_again_until_it_renews(answers, ours):
    codes, client = answers
    codes += [503, 503, 204]
    assert slot.renew(client, ours, 300, threading.Event())
    assert codes == []


def test_a_place_that_is_lost_is_put_up_with(answers, ours):
    codes, client = answers
    codes += [410]
    assert not slot.renew(client, ours, 300, threading.Event())


def test_a_flow_that_has_ended_renews_nothing(answers, ours):
    _, client = answers
    ended = threading.Event()
    ended.set()
    assert not slot.renew(client, ours, 300, ended)


def test_leases_of_others_are_renewed_as_prefect_does(answers, ours, monkeypatch):
    codes, client = answers
    codes += [410]
    monkeypatch.setattr(_leases, "_RENEWAL_MAX_ATTEMPTS", 1)
    with pytest.raises((PrefectHTTPStatusError, httpx.HTTPError)):
        slot.renew(client, uuid4(), 300, threading.Event())


def test_prefect_renews_leases_in_this_way(answers, ours, monkeypatch):
    """Its loop calls the function that `keep_slot` replaces."""
    codes, _ = answers
    codes += [410]
    monkeypatch.setattr(_leases, "_renew_concurrency_lease_with_retries", slot.renew)
    _leases._lease_renewal_loop(ours, 300, threading.Event())
    assert codes == []
