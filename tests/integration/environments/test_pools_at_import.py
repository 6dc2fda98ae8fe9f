"""A pool that is made when a tool's file is imported has lost its threads where episodes live."""

from pathlib import Path

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.messages import EpisodeStart, ToolCall
from mortal_steps.environments.processes.faults import REMEDIES, Fault
from mortal_steps.environments.processes.host import environment_host
from mortal_steps.environments.processes.process import EpisodesProcess

TOOLS = """
import asyncio, functools, multiprocessing, time
from concurrent.futures import ThreadPoolExecutor

POOL = multiprocessing.get_context("fork").Pool(1)
THREADS = ThreadPoolExecutor(1)
THREADS.submit(len, "").result()

@functools.cache
def own():
    return multiprocessing.get_context("fork").Pool(1)

def of_processes() -> str:
    return str(POOL.map(len, ["abc"]))

def of_threads() -> str:
    return str(THREADS.submit(len, "abc").result())

def of_its_own() -> str:
    return str(own().map(len, ["abc"]))

def sleeps() -> str:
    time.sleep(60)

async def awaits() -> str:
    await asyncio.sleep(60)
"""
NAMES = ("of_processes", "of_threads", "of_its_own", "sleeps", "awaits")


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that calls a tool in a new episode, which has a second."""
    monkeypatch.chdir(tmp_path)
    Path("tools.py").write_text(TOOLS)
    host = environment_host(EnvironmentConfig(tools=tuple(f"tools.py:{n}" for n in NAMES)), {})

    def call(name: str) -> object:
        episode = EpisodesProcess(host.fork(), 1.0)
        try:
            start = EpisodeStart(environment=None, prompt=[], row={}, reset_seed=1, seed=1)
            episode.open(0, start)
            return episode.call(0, [ToolCall(name=name, arguments={}, call_id="a")])[0].content
        finally:
            episode.close()

    yield call
    host.close()


def test_who_waits_for_it_is_told_so_and_who_waits_for_something_else_is_not(called):
    found = {}
    for name in ("of_processes", "of_threads", "sleeps", "awaits"):
        with pytest.raises(Fault, match="no answer within 1 s") as failed:
            called(name)
        found[name] = "made when its file is imported" in failed.value.reason
        assert (failed.value.remedy == REMEDIES["pool"]) == found[name]
    assert found == {"of_processes": True, "of_threads": True, "sleeps": False, "awaits": False}
    assert called("of_its_own") == "[3]"
