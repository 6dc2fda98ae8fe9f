"""A standard stream that nobody reads any more."""

from __future__ import annotations

import os
from typing import IO


def lead_nowhere(stream: IO[str]) -> None:
    """From now on, what is written to the stream is lost; what it still holds is flushed there."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
