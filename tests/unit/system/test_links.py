"""mortal_steps.system.links"""

import socket
import threading
import time

import pytest

from mortal_steps.system.frames import receive_frame, send_frame
from mortal_steps.system.links import accept, listen, reach

PORT = 29499
SOON_S = 20.0


@pytest.fixture(params=["127.78.0.1", "::1"])
def server(request):
    try:
        server = listen(request.param, PORT)
    except OSError as error:
        pytest.skip(f"this machine has no {request.param}: {error}")
    with server:
        yield server


def accepted(server, secret="known"):
    """Accept in a thread; the list has what came of it, once the thread has ended."""
    came = []

    def wait():
        try:
            came.append(accept(server, secret, time.monotonic() + SOON_S))
        except TimeoutError as error:
            came.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, came


def test_who_knows_the_secret_is_talked_with(server):
    thread, came = accepted(server)
    with reach(server.getsockname()[0], PORT, "known") as there:
        thread.join()
        with came[0] as here:
            send_frame(there, "a request")
            assert receive_frame(here) == "a request"


def test_who_does_not_know_it_is_hung_up_on_and_hangs_up(server):
    address = server.getsockname()[0]
    thread, came = accepted(server)
    with pytest.raises(ConnectionAbortedError):
        reach(address, PORT, "guessed")
    with socket.create_connection((address, PORT)) as silent:
        silent.sendall(bytes([255]) * 64)
    with reach(address, PORT, "known") as there:
        thread.join()
        with came[0] as here:
            send_frame(here, "an answer")
            assert receive_frame(there) == "an answer"


def test_nobody_is_awaited_for_ever(server):
    with pytest.raises(TimeoutError):
        accept(server, "known", time.monotonic() + 0.05)


def test_where_nobody_listens_nobody_is_reached():
    with pytest.raises(OSError):
        reach("127.78.0.2", PORT, "known")
