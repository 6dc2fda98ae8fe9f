"""Connections between machines, of which both ends know a secret.

Each end proves to the other that it knows the secret, before anything of the other's is unpickled:
it answers with the HMAC of what the other has drawn. Nothing is encrypted, so the network between
the machines has to be private.
"""

import hmac
import os
import socket
import time

from mortal_steps.system.frames import FrameError, receive_bytes, send_bytes

NUM_BYTES = 32
"""Of what each end draws, and of an answer."""
PROVEN_WITHIN_S = 10.0
GONE_AFTER_S = 60
"""How long a machine may not answer before its connections break."""
LISTENS, REACHES = b"listens", b"reaches"
"""What an end says of itself, so that no answer is one's own."""


def listen(address: str, port: int) -> socket.socket:
    """Return a socket to which `reach` connects from elsewhere; raises `OSError`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)


def accept(server: socket.socket, secret: str, deadline: float) -> socket.socket:
    """Return the next connection whose other end knows the secret. Raises `TimeoutError` at
    `deadline` (monotonic)."""
    while True:
        server.settimeout(max(deadline - time.monotonic(), 0.001))
        connection, _ = server.accept()
        try:
            return _proven(connection, secret, LISTENS, REACHES)
        except OSError:  # others may knock, too
            connection.close()


def reach(address: str, port: int, secret: str) -> socket.socket:
    """Return a connection to who listens there and knows the secret. Raises `OSError` where nobody
    does."""
    connection = socket.create_connection((address, port), timeout=PROVEN_WITHIN_S)
    try:
        return _proven(connection, secret, REACHES, LISTENS)
    except OSError:
        connection.close()
        raise


def _proven(connection: socket.socket, secret: str, here: bytes, there: bytes) -> socket.socket:
    deadline = time.monotonic() + PROVEN_WITHIN_S
    drawn = os.urandom(NUM_BYTES)
    send_bytes(connection, drawn)
    try:
        theirs = receive_bytes(connection, deadline=deadline, largest=NUM_BYTES)
        send_bytes(connection, _answer(secret, here + theirs))
        answer = receive_bytes(connection, deadline=deadline, largest=NUM_BYTES)
    except (EOFError, FrameError) as error:
        raise ConnectionAbortedError("the other end has hung up, or is somebody else") from error
    if not hmac.compare_digest(answer, _answer(secret, there + drawn)):
        raise ConnectionAbortedError("the other end does not know the secret")
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GONE_AFTER_S // 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, GONE_AFTER_S // 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_AFTER_S * 1000)
    return connection


def _answer(secret: str, drawn: bytes) -> bytes:
    return hmac.digest(secret.encode(), drawn, "sha256")
