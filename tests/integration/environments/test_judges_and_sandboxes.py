"""Tools and agents that run programs in the sandbox and ask judges: with the run's settings, and
paid once."""

from collections.abc import Iterator

import pytest

from mortal_steps.config import EnvironmentConfig, RewardsConfig
from mortal_steps.environments.kinds.agent import AgentEnvironment
from mortal_steps.environments.messages import AgentResult, EpisodeStart, ToolCall
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.processes.host import described, environment_host, sandbox_of
from mortal_steps.errors import ConfigError, EnvironmentFailedError, NoIsolationError
from mortal_steps.rewards.judge.ledger import FOLDER, JudgedRun, Spending
from mortal_steps.store.identity import IDENTITY_FILE
from tests.support.environments import asking
from tests.support.judge_asked import FOR_LONG
from tests.support.judge_stub import Answer, JudgeStub
from tests.support.paths import ROOT

PROGRAM = "print(6 * 7)"


@pytest.fixture
def stub(monkeypatch) -> Iterator[JudgeStub]:
    with JudgeStub() as made:
        monkeypatch.setenv("JUDGE_URL", made.url)
        yield made


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / IDENTITY_FILE).write_text("{}")
    return tmp_path


@pytest.fixture
def ask(run_dir, monkeypatch):
    """Return a function that has a tool called in some cells of a new process of the run's."""
    monkeypatch.chdir(ROOT)

    def ask(name, *arguments, rewards=None, **options):
        tools = tuple(f"{asking.__name__}:{tool}" for tool in ("run", "rate"))
        environment = EnvironmentConfig(
            **{"tools": tools, "timeout_s": 20.0, "retries": 0, **options}
        )
        host = environment_host(
            environment,
            {},
            sandbox=sandbox_of(environment, RewardsConfig(**rewards or {}), "mortal"),
            judge=JudgedRun(run_dir=str(run_dir), call_timeout_s=60.0),
        )
        cells = Cells(host, environment)
        try:
            described(host)
            host.call("prepare_forks", returns=None, timeout_s=60.0)
            starts = [
                EpisodeStart(environment=None, prompt=[], row={}, reset_seed=1, seed=1)
                for _ in arguments
            ]
            cells.open({str(number): [start] for number, start in enumerate(starts)})
            asked = {
                (str(number), 0): [ToolCall(name=name, arguments=given, call_id=f"{number}/0/0")]
                for number, given in enumerate(arguments)
            }
            return [answers[0].content for answers in cells.call(asked).values()]
        finally:
            cells.close()
            host.close()

    return ask


@pytest.fixture
def play(run_dir, monkeypatch):
    """Return a function that has an agent play an episode in a new process of the run's."""
    monkeypatch.chdir(ROOT)

    def play(**rewards):
        environment = AgentEnvironment(agent=f"{asking.__name__}:agent", timeout_s=20.0)
        host = environment_host(
            environment,
            {},
            sandbox=sandbox_of(environment, RewardsConfig(**rewards), "mortal"),
            judge=JudgedRun(run_dir=str(run_dir), call_timeout_s=5.0),
        )
        row = {"code": PROGRAM, "text": "abc"}
        start = EpisodeStart(environment=None, prompt=[], row=row, reset_seed=1, seed=1)
        try:
            host.start()
            host.call("prepare_forks", returns=None, timeout_s=60.0)
            asked = {"start": start, "base_url": "http://127.0.0.1:9/v1"}
            return host.fork().call("run", returns=AgentResult, timeout_s=60.0, **asked)
        finally:
            host.close()

    return play


def test_an_agent_runs_programs_as_the_rewards_do_and_pays_a_judge_once(
    play, stub, run_dir, monkeypatch
):
    for _ in range(2):
        found = play()
        assert (found.reward, found.metrics) == (3.0, {"printed": 42.0})
    assert stub.paid == ["abc"]
    assert Spending(run_dir).so_far().answers == 1
    monkeypatch.setenv("NO_BUBBLEWRAP", "1")
    with pytest.raises(NoIsolationError, match="bubblewrap is not installed"):
        play()
    assert play(sandbox={"allow_unisolated": True}).reward == 3.0


def test_an_agent_without_an_answer_of_its_judge_has_an_outage(play, stub):
    stub.always = lambda body: Answer(status=503, body="busy")
    assert "busy" in play().outage


def test_a_tool_runs_a_program_in_the_sandbox(ask):
    assert ask("run", {"code": PROGRAM}, {"code": "import os; print(os.getppid())"}) == [
        "42\n",
        "1\n",
    ]


def test_the_sandbox_is_that_of_the_rewards(ask, monkeypatch):
    monkeypatch.setenv("NO_BUBBLEWRAP", "1")
    with pytest.raises(NoIsolationError, match="bubblewrap is not installed"):
        ask("run", {"code": PROGRAM})
    rewards = {"sandbox": {"allow_unisolated": True}}
    assert ask("run", {"code": PROGRAM}, rewards=rewards) == ["42\n"]


def test_what_a_judge_was_paid_for_is_not_asked_again_by_another_process(ask, stub, run_dir):
    assert ask("rate", {"text": "abc"}, {"text": "abcd"}) == ["3.0", "4.0"]
    assert len(list((run_dir / FOLDER).glob("*.jsonl"))) == 1
    assert ask("rate", {"text": "abcd"}, {"text": "a"}) == ["4.0", "1.0"]
    assert sorted(stub.paid) == ["a", "abc", "abcd"]
    assert Spending(run_dir).so_far().answers == 3


def test_a_judge_that_does_not_answer_is_an_outage(ask, stub):
    stub.always = lambda body: Answer(status=503, body="busy", headers=FOR_LONG)
    with pytest.raises(EnvironmentFailedError, match=r"tool rate: .*JudgeError.*busy"):
        ask("rate", {"text": "abc"})


def test_a_wrong_key_ends_the_run(ask, stub):
    stub.key = "sk-another"
    with pytest.raises(ConfigError, match="key"):
        ask("rate", {"text": "abc"})
