"""A unit test starts no process: one that tries to fails there."""

import sys

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
_in_a_test = False


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _in_a_test and event in STARTS:
        raise AssertionError(f"a unit test starts a process: {event} {arguments[:2]}")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def no_process():
    """For the time of the test."""
    global _in_a_test
    _in_a_test = True
    yield
    _in_a_test = False


@pytest.fixture(scope="package", autouse=True)
def absent_servers_are_noticed_at_once():
    """Prefect's client connects three times, which takes 1.5 s."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("_async", "_sync"):
            pause = f"httpcore.{kind}.connection.RETRIES_BACKOFF_FACTOR"
            patch.setattr(pause, 0.0, raising=False)
        yield
