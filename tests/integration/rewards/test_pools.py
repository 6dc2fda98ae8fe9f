"""Pools of processes in users' code find its functions, as in plain Python."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.inside.handler import EnvironmentHandler
from mortal_steps.environments.messages import EpisodeStart, ToolCall
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallFailure, arguments_of
from mortal_steps.rewards.host import RewardHost
from mortal_steps.rewards.kinds.users_code import PickledTerm
from mortal_steps.rewards.pickles.digest import digest_of
from mortal_steps.rewards.pickles.files import write_pickle
from tests.support.rewards import pools
from tests.support.rewards.calling import term
from tests.support.rewards.shards import make_shard

ARGUMENTS = arguments_of(make_shard(("abc", "ab")).groups, TrainerState(global_step=0, max_steps=1))


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def outcomes(terms: dict[str, Any], timeout_s: float = 30.0) -> dict[str, Any]:
    host = RewardHost(terms)
    try:
        return {name: host.call([name], ARGUMENTS, timeout_s=timeout_s)[name] for name in terms}
    finally:
        host.close()


def test_processes_that_begin_anew_import_what_a_file_defines() -> None:
    shutil.copy(pools.__file__, "edited.py")
    names = ("spawned", "of_a_fork_server", "executed_after_an_edit")
    found = outcomes({name: term(f"edited.py:{name}") for name in names})
    assert [each.scores for each in found.values()] == [[3.0, 2.0]] * 3, found


SCRIPT = """
import functools, multiprocessing

def doubled(function):
    @functools.wraps(function)
    def both(text):
        return 2 * function(text)
    return both

@doubled
def size(text):
    return float(len(text))

class Sizes:
    def one(self, text):
        return size(text)

def forked(completions, **kwargs):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(size, completions)

def spawned(completions, **kwargs):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pool.map(size, completions)

def by_a_method(completions, **kwargs):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pool.map(Sizes().one, completions)
"""


def test_functions_of_a_script_are_found_by_processes_of_each_of_its_rewards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import __main__

    script: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, script)
    monkeypatch.setattr(__main__, "Sizes", script["Sizes"], raising=False)
    terms = {}
    for name in ("forked", "spawned", "by_a_method"):
        digest, _ = digest_of(script[name], name)
        write_pickle(Path(f"{name}.pickle"), script[name], digest, name)
        terms[name] = PickledTerm(object=digest, file=f"{name}.pickle", name=name)
    found = outcomes(terms)
    assert [each.scores for each in found.values()] == [[6.0, 4.0]] * 3, found


def test_what_goes_wrong_in_a_pool_is_told_with_its_remedy() -> None:
    def failure_of(name: str) -> CallFailure:
        found = outcomes({name: term(f"{pools.__file__}:{name}")}, timeout_s=1.0)[name]
        assert isinstance(found, CallFailure)
        return found

    assert "define it at the top of its file" in failure_of("cannot_be_sent").remedy
    # Now and then Python crashes while it writes where a process is whose threads come and go:
    # then nobody knows the remedy.
    waiting = next(each for _ in range(10) if (each := failure_of("waits_for_ever")).trace)
    assert (waiting.kind, "--logs" in waiting.remedy) == ("timeout", True), waiting
    assert failure_of("waits_for_ever").kind == "timeout"


def test_a_tool_of_a_file_may_have_a_pool() -> None:
    Path("tools.py").write_text(
        "import multiprocessing\n"
        "def size(text): return len(text)\n"
        "def measure(text: str) -> str:\n"
        '    """Measure.\n\n    Args:\n        text: It.\n    """\n'
        '    with multiprocessing.get_context("spawn").Pool(1) as pool:\n'
        "        return str(pool.map(size, [text]))\n"
    )
    handler = EnvironmentHandler(
        environment=EnvironmentConfig(tools=("tools.py:measure",)), terms={}
    )
    handler.open(start=EpisodeStart(environment=None, prompt=[], row={}, reset_seed=1, seed=1))
    call = ToolCall(name="measure", arguments={"text": "abc"}, call_id="a/0/0")
    assert handler.call(episode=0, calls=[call])[0].content == "[3]"
