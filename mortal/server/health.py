"""Whether our own Prefect server answers."""

from __future__ import annotations

import errno
import http.client

from mortal_steps.errors import ServerError

ANSWER_TIMEOUT_S = 20.0


def answers(port: int) -> bool:
    """Whether it is healthy. Prefect's client would take longer to make than the server to say.

    Raises `ServerError` where nothing that listens on loopback can be reached.
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
