"""mortal_steps.rewards.host: whatever a function does to its process, its owner lives."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.errors import RewardError, TransientError, WorkerLostError
from mortal_steps.hosts import base
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallFailure, CallScores, arguments_of
from mortal_steps.rewards.host import RewardHost
from tests.support.chaos.processes import started_by
from tests.support.rewards import failing
from tests.support.rewards.calling import term
from tests.support.rewards.processes import assert_ends, is_alive
from tests.support.rewards.shards import make_shard

STATE = TrainerState(global_step=0, max_steps=1)
TIMEOUT_S = 0.3
"""For those that give no answer."""
PATIENCE_S = 30.0
"""For those that do, on a machine that has much else to do."""


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "GRACE_S", 0.1)


@pytest.fixture
def make_host() -> Iterator[Callable[..., RewardHost]]:
    made: list[RewardHost] = []

    def make(*names: str) -> RewardHost:
        made.append(RewardHost({name: term(f"{failing.__file__}:{name}") for name in names}))
        return made[-1]

    yield make
    for host in made:
        host.close()


def call(
    host: RewardHost,
    *names: str,
    texts: tuple[str, ...] = ("a", "bb"),
    timeout_s: float = PATIENCE_S,
) -> dict[str, Any]:
    arguments = arguments_of(make_shard(texts).groups, STATE)
    return {name: host.call([name], arguments, timeout_s=timeout_s)[name] for name in names}


def host_pid(host: RewardHost) -> int:
    """The host itself, below its supervisor."""
    assert host.process._child is not None
    return started_by(host.process._child.pid)[0]


def test_what_is_said_of_more_completions_than_there_are_is_no_answer(make_host: Any) -> None:
    host = make_host("length")
    host.start()
    said = CallScores(scores=[1.0], metrics={}, extra={}, teacher_logprobs=["AAAA", "AAAA"])
    with pytest.raises(base.HostLostError) as lost:
        host._check({"length": said}, ["length"], 1)
    assert "not every column of it has 1 values" in lost.value.how


def test_one_process_serves_all_calls(make_host: Any) -> None:
    host = make_host("length", "patient")
    host.start()
    first = host_pid(host)
    assert first != os.getpid()
    for text in ("a", "bbb"):
        outcomes = call(host, "length", "patient", texts=(text,))
        assert outcomes["length"].scores == outcomes["patient"].scores == [float(len(text))]
    assert host_pid(host) == first
    host.close()
    assert_ends(first)


@pytest.mark.parametrize(
    ("name", "word", "kind", "message", "where"),
    [
        ("sleeps", "sleep", "timeout", "gave no answer within 0.3 s", "in sleeps"),
        ("backtracks", "regex", "timeout", "gave no answer within 0.3 s", "in backtracks"),
        ("exits", "exit", "crash", "ended its process (exit code 3)", ""),
        ("segfaults", "fault", "crash", "ended its process (SIGSEGV)", "in segfaults"),
    ],
)
def test_a_lost_host_is_named_and_replaced(
    make_host: Any, name: str, word: str, kind: str, message: str, where: str
) -> None:
    host = make_host(name)
    host.start()
    first = host_pid(host)
    began = time.monotonic()
    timeout_s = TIMEOUT_S if kind == "timeout" else PATIENCE_S
    failure = call(host, name, texts=("fine", word), timeout_s=timeout_s)[name]
    assert time.monotonic() - began < PATIENCE_S
    assert isinstance(failure, CallFailure)
    assert (failure.kind, failure.message) == (kind, message)
    assert where in failure.trace
    assert not is_alive(first)
    assert call(host, name)[name].scores == [1.0, 2.0]
    assert host_pid(host) != first


def test_what_a_hanging_function_started_ends_with_it(make_host: Any) -> None:
    host = make_host("leaves_a_child")
    outcomes = call(host, "leaves_a_child", texts=("child",), timeout_s=TIMEOUT_S)
    assert outcomes["leaves_a_child"].kind == "timeout"
    assert_ends(int(Path("child").read_text()))


def test_what_left_its_group_and_its_parent_ends_with_the_host(make_host: Any) -> None:
    host = make_host("leaves_a_daemon", "exits")
    assert call(host, "leaves_a_daemon")["leaves_a_daemon"].scores == [1.0, 2.0]
    first = int(Path("daemon").read_text())
    assert is_alive(first)
    assert call(host, "exits", texts=("exit",))["exits"].kind == "crash"
    assert_ends(first)
    call(host, "leaves_a_daemon")
    second = int(Path("daemon").read_text())
    host.close()
    assert_ends(second)


@pytest.mark.parametrize("name", ["forges", "answers_for_another"])
def test_what_a_function_writes_into_the_connection_is_never_run(make_host: Any, name: str) -> None:
    host = make_host(name, "length")
    failure = call(host, name)[name]
    assert failure.kind == "crash"
    assert failure.message.startswith("wrote into the connection of its process: ")
    assert not Path("forged").exists()
    assert call(host, "length")["length"].scores == [1.0, 2.0]


def test_a_host_that_trickles_ends_at_its_time(make_host: Any) -> None:
    host = make_host("trickles")
    host.start()
    began = time.monotonic()
    assert call(host, "trickles", timeout_s=TIMEOUT_S)["trickles"].kind == "timeout"
    assert time.monotonic() - began < PATIENCE_S


def test_functions_do_not_see_what_drives_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in failing.SEEN_OR_NOT:
        monkeypatch.setenv(name, "secret")
    specs = {"f": term(f"{failing.__file__}:sees_the_environment")}
    host = RewardHost(specs, passed_on=["MODAL_PASSED_ON", "HF_TOKEN"])
    try:
        assert call(host, "f", texts=("a",))["f"].extra == {
            "seen": ["MODAL_PASSED_ON JUDGE_API_KEY HF_TOKEN"]
        }
    finally:
        host.close()


@pytest.mark.parametrize(
    ("name", "word", "kind"),
    [("blocks_the_loop", "block", "timeout"), ("ends_the_loop", "end", "crash")],
)
def test_an_async_function_that_takes_the_host_along_fails_alone(
    make_host: Any, name: str, word: str, kind: str
) -> None:
    host = make_host("patient", name)
    timeout_s = 1.0 if kind == "timeout" else PATIENCE_S
    outcomes = call(host, "patient", name, texts=(word,), timeout_s=timeout_s)
    assert outcomes["patient"].scores == [float(len(word))]
    assert (outcomes[name].kind, name in outcomes[name].trace) == (kind, kind == "timeout")


def test_files_of_the_working_folder_hide_nothing_installed(tmp_path: Path) -> None:
    for name in ("logging", "random", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hidden')\n")
    (tmp_path / "mine.py").write_text("SCORE = 3.0\n")
    (tmp_path / "own.py").write_text(
        "import random\nimport mine\n\n"
        "def three(completions, **kwargs):\n    return [mine.SCORE for _ in completions]\n"
    )
    host = RewardHost({"three": term("own:three")})
    try:
        assert call(host, "three")["three"].scores == [3.0, 3.0]
    finally:
        host.close()


def test_a_host_that_died_between_calls_is_nobodys_failure(make_host: Any) -> None:
    host = make_host("length")
    call(host, "length")
    pid = host_pid(host)
    os.kill(pid, signal.SIGKILL)
    assert_ends(pid)
    assert isinstance(call(host, "length")["length"], CallScores)


def test_errors_that_may_pass_stay_so_outside(make_host: Any) -> None:
    host = make_host("unreachable", "length")
    with pytest.raises(TransientError, match="JudgeIsBusyError: ask again later") as caught:
        call(host, "unreachable")
    assert type(caught.value) is TransientError
    assert call(host, "length")["length"].scores == [1.0, 2.0]


def test_a_module_that_ends_the_process_is_named() -> None:
    Path("ends.py").write_text("import os\nos._exit(5)\n")
    with pytest.raises(RewardError, match=r"ends\.py:f ended the process \(exit code 5\)"):
        RewardHost({"f": term("ends.py:f")}).start()


def test_a_host_for_which_the_machine_has_no_room_is_infrastructure(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host("length")
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/not/there")
        with pytest.raises(WorkerLostError, match=r"could not be started: .*temporary folder"):
            call(host, "length")
    assert call(host, "length")["length"].scores == [1.0, 2.0]


def test_a_host_that_is_killed_while_it_imports_is_infrastructure() -> None:
    Path("shot.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(WorkerLostError, match=r"killed \(SIGKILL\) while it imported shot\.py:f"):
        RewardHost({"f": term("shot.py:f")}).start()
