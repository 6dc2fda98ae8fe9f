"""Checks whether our own Prefect server answers."""

from __future__ import annotations

import errno
import http.client

from mortal_steps.errors import ServerError

ANSWER_TIMEOUT_S = 20.0


def answers(port: int) -> bool:
    """Whether the server on this port of 127.0.0.1 is healthy.

    This does not use Prefect's client, because making one takes longer than the request. Raises
    `ServerError` if the network interface of loopback is down.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno == errno.ENETUNREACH:
            raise ServerError(
                "127.0.0.1 cannot be reached: the network interface lo is down. Bring it up with "
                "`ip link set lo up`, or set PREFECT_API_URL to a server that can be reached"
            ) from error
        return False
    finally:
        connection.close()
