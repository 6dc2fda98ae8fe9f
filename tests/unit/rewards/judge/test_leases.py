"""A place among a judge's limits is renewed for as long as its request takes, and no longer."""

import json
import threading

import httpx

from mortal_steps.rewards.judge.leases import LEASE_S, Leases


class Server:
    """Notes what it is asked; a request to renew ends with `fails`, if that is set."""

    def __init__(self):
        self.asked = []
        self.renewed = threading.Semaphore(0)
        self.fails = None

    def __call__(self, request):
        self.asked.append((request.url.path, json.loads(request.content)))
        if request.url.path.endswith("/renew"):
            self.renewed.release()
            if self.fails is not None:
                raise self.fails
        return httpx.Response(204)


def leases_at(server, renew_every_s=0.01):
    transport = httpx.MockTransport(server)
    return Leases(httpx.Client(transport=transport, base_url="http://server"), renew_every_s)


def wait_for_its_thread(leases):
    renewing = leases._renewing
    if renewing is not None:
        renewing.join(10)


def test_a_lease_is_renewed_until_it_is_given_back():
    server = Server()
    leases = leases_at(server)
    leases.hold("one")
    for _ in range(3):
        assert server.renewed.acquire(timeout=10)
    leases.give_back("one")
    assert ("/leases/one/renew", {"lease_duration": LEASE_S}) in server.asked
    assert ("/decrement-with-lease", {"lease_id": "one"}) in server.asked
    wait_for_its_thread(leases)
    told = len(server.asked)
    leases.hold("two")
    assert server.renewed.acquire(timeout=10)
    leases.give_back("two")
    assert ("/leases/two/renew", {"lease_duration": LEASE_S}) in server.asked[told:]


def test_a_server_that_is_away_once_is_asked_again(caplog):
    server = Server()
    server.fails = httpx.ConnectError("nobody listens")
    leases = leases_at(server)
    leases.hold("one")
    for _ in range(2):
        assert server.renewed.acquire(timeout=10)
    leases.give_back("one")
    assert "a place among a judge's limits was not renewed: nobody listens" in caplog.text


def test_a_request_that_is_short_renews_nothing():
    server = Server()
    leases = leases_at(server, renew_every_s=0.2)
    for number in range(20):
        leases.hold(str(number))
        leases.give_back(str(number))
    wait_for_its_thread(leases)
    assert {path for path, _ in server.asked} == {"/decrement-with-lease"}
