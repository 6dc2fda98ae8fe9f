"""`mortal` in this process, and runs that it can be asked about."""

import logging
import signal
import sys

import pytest

from mortal import cli


@pytest.fixture
def mortal(monkeypatch, capsys):
    """Runs the command in this process; returns its exit code, output and errors."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mortal", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
