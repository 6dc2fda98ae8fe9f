"""Entry point of the `mortal` command. It imports nothing but what it says, so that a Ctrl-C while
the rest is imported is the same as one later."""

import sys
from typing import NoReturn

INTERRUPTED = 130
"""Exit code after a Ctrl-C: 128 and the signal's number, as shells have it."""


def main() -> NoReturn:
    try:
        from mortal.cli import main as command
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    command()
