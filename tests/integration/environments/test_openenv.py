"""`type = "openenv"`: episodes at a server, which may be killed."""

import contextlib
import socket
import subprocess
import sys
import threading
import time

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.cells import Cells
from mortal_steps.environments.host import describe_once, environment_host
from mortal_steps.environments.kinds.openenv import OpenEnvEnvironment
from mortal_steps.environments.messages import EpisodeStart, ToolCall
from mortal_steps.errors import ConfigError
from mortal_steps.rewards.calling.calls import CallArguments
from tests.support.paths import ROOT

KEY = "train-0"
PROMPT = [{"role": "user", "content": "Play. "}]


class Server:
    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = None

    def start(self, sessions=8):
        name = "tests.support.environments.openenv_server"
        command = [sys.executable, "-m", name, str(self.port), str(sessions)]
        self.process = subprocess.Popen(command, cwd=ROOT)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server():
    server = Server()
    server.start()
    yield server
    server.kill()


def config(server, **settings) -> EnvironmentConfig:
    shared = {"url": f"http://127.0.0.1:{server.port}", "observation": "text", "timeout_s": 20.0}
    return OpenEnvEnvironment(**{**shared, "on_error": "mask", **settings})


@contextlib.contextmanager
def episodes(environment, count=2):
    host = environment_host(environment, {})
    cells = Cells(host, environment)
    row = {"prompt": PROMPT, "name": "Ada"}
    starts = [
        EpisodeStart(environment="", prompt=PROMPT, row=row, reset_seed=5, seed=number)
        for number in range(count)
    ]
    try:
        yield cells, cells.open({KEY: starts})[KEY]
    finally:
        cells.close()
        host.close()


def ask(cells, episode, name, **arguments):
    call = ToolCall(
        name=name, arguments=arguments, call_id=name + str(arguments), is_reply=name == "_reply"
    )
    found = cells.call({(KEY, episode): [call]})[KEY, episode]
    return found[0] if isinstance(found, list) else found


def scores(cells, *numbers):
    arguments = CallArguments(by_name={}, problem_ids=[KEY] * len(numbers))
    return cells.score(KEY, numbers, arguments, {"OpenEnv": 20.0}).by_name["OpenEnv"]


def test_a_message_is_a_step_and_what_has_no_reward_has_none(server):
    with episodes(config(server, action="message"), 3) as (cells, opened):
        told = opened[0].prompt[-1]["content"]
        assert told.startswith("Play. Say ") and told.endswith(", Ada.")
        assert [each.prompt for each in opened] == [opened[0].prompt] * 3  # by the same seed
        number = told.split()[2].rstrip(",")
        assert ask(cells, 0, "_reply", text="hello").content == "not hello"
        assert ask(cells, 0, "_reply", text=number).content is None
        assert ask(cells, 1, "_reply", text="hello").content == "not hello"
        assert scores(cells, 0, 1, 2) == [1.0, None, None]


def test_its_mcp_tools_are_called_and_their_errors_told(server):
    environment = config(server)
    (tool,) = describe_once(environment).environments[""].tools
    assert tool["function"]["name"] == "say"
    assert tool["function"]["parameters"]["properties"] == {"number": {"type": "integer"}}
    with episodes(environment) as (cells, _):
        assert ask(cells, 0, "say", number=1000).content == "wrong"
        assert ask(cells, 0, "say").content == "{'error': 'which number?'}"
        assert scores(cells, 0, 1) == [0.0, None]


def test_a_server_that_is_killed_and_comes_back_costs_no_episode(server):
    with episodes(config(server, action="message")) as (cells, opened):
        number = opened[0].prompt[-1]["content"].split()[2].rstrip(",")
        before = [ask(cells, each, "_reply", text="hello").content for each in range(2)]
        server.kill()
        began = time.monotonic()
        threading.Timer(2.0, server.start).start()
        assert ask(cells, 0, "_reply", text="again").content == "not again"
        assert time.monotonic() - began >= 2.0
        assert before == ["not hello"] * 2
        assert ask(cells, 1, "_reply", text=number).content is None
        assert scores(cells, 0, 1) == [None, 1.0]


def test_a_server_that_stays_away_is_never_scored(server):
    with episodes(config(server, action="message", timeout_s=1.0, retries=1)) as (cells, _):
        server.kill()
        failed = ask(cells, 0, "_reply", text="again")
        assert failed.reason.startswith(("_reply: ", "reset: ")) and "Connection" in failed.reason


def test_what_breaks_in_the_server_is_not_told_to_the_model(server):
    with episodes(config(server, action="message", retries=0)) as (cells, _):
        assert "the game is broken" in ask(cells, 0, "_reply", text="break").reason


def test_a_full_server_is_named(server):
    server.kill()
    server.start(sessions=1)
    with episodes(config(server, action="message", timeout_s=2.0, retries=0)) as (_, opened):
        assert opened[0].failure is None or opened[1].failure is None
        (failure,) = (each.failure for each in opened if each.failure is not None)
        assert "CAPACITY_REACHED" in failure


def test_a_server_that_is_not_there_is_named_before_the_run(server):
    server.kill()
    with pytest.raises(ConfigError, match=r"environment\.url = .*see to the server"):
        describe_once(config(server, timeout_s=1.0))
