"""`type = "openenv"`: episodes at a server, which may be killed."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from websockets.sync.server import serve

from mortal_steps.config import EnvironmentConfig, RewardsConfig
from mortal_steps.environments.kinds.openenv import OpenEnvEnvironment
from mortal_steps.environments.messages import EpisodeStart, ToolCall
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.processes.host import environment_host
from mortal_steps.errors import ConfigError, TransientError
from mortal_steps.rewards.calling.calls import CallArguments
from mortal_steps.types import GeneratedShard
from tests.support.environments import openenv_server
from tests.support.environments.cases import Case, build
from tests.support.environments.describing import describe_once
from tests.support.environments.mortal import Workers
from tests.support.paths import ROOT

KEY = "train-0"
PROMPT = [{"role": "user", "content": "Play. "}]


class Server:
    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = None

    def start(self, sessions=8, first=0):
        numbers = map(str, (self.port, sessions, first))
        command = [sys.executable, "-m", openenv_server.__name__, *numbers]
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


@pytest.mark.parametrize("settings", [{}, {"tool": "say"}, {"action": "message"}])
def test_a_server_that_is_not_there_is_named_before_the_run_which_may_be_tried_again(
    server, settings
):
    server.kill()
    with pytest.raises(TransientError, match=r"environment\.url = .*no server.*refused") as away:
        describe_once(config(server, timeout_s=1.0, **settings))
    assert "Traceback" not in str(away.value)


@contextlib.contextmanager
def refusing():
    """Yield the port of a server that is there, and does nothing that it is asked."""

    def answer(connection):
        for _ in connection:
            data = {"code": "EXECUTION_ERROR", "message": "there is no such action"}
            connection.send(json.dumps({"type": "error", "data": data}))

    def find(connection, request):
        return None if request.path == "/ws" else connection.respond(404, "no such page")

    with serve(answer, "127.0.0.1", 0, process_request=find) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.socket.getsockname()[1]


@pytest.mark.parametrize(
    "path, settings, said",
    [
        ("", {}, "EXECUTION_ERROR: there is no such action"),
        ("", {"tool": "say"}, "404"),
        ("/other", {"action": "message"}, "404"),
    ],
)
def test_a_server_that_is_there_and_refuses_is_no_outage(path, settings, said):
    with refusing() as port:
        environment = OpenEnvEnvironment(
            url=f"http://127.0.0.1:{port}{path}", timeout_s=1.0, **settings
        )
        with pytest.raises(ConfigError, match=rf"{said}.*; correct the address, or set"):
            describe_once(environment)


def test_what_an_action_is_made_of_is_asked_without_a_proxy_as_sessions_are(monkeypatch):
    schema = {"properties": {"number": {"type": "integer"}}}

    def find(connection, request):
        if request.path == "/schema":
            return connection.respond(200, json.dumps({"action": schema}))
        return None

    with serve(lambda connection: None, "127.0.0.1", 0, process_request=find) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        monkeypatch.setenv("no_proxy", "")
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        (made,) = OpenEnvEnvironment(url=url, tool="step").load().values()
    assert made.func.step.json_schema["function"]["parameters"] == {"type": "object", **schema}


@pytest.mark.parametrize("text", openenv_server.GARBLED)
def test_what_is_no_answer_is_an_outage_and_never_scored(server, text):
    with episodes(config(server, action="message", retries=0)) as (cells, _):
        failed = ask(cells, 0, "_reply", text=text)
        assert "ConnectionError" in failed.reason and str(server.port) in failed.reason
        assert scores(cells, 0, 1) == [None, None]


def test_what_is_no_answer_of_a_tool_is_not_told_to_the_model(server):
    with episodes(config(server, retries=0)) as (cells, _):
        assert "cannot be understood" in ask(cells, 0, "say", number=-1).reason


def test_no_step_is_taken_behind_the_end(server):
    with episodes(config(server)) as (cells, opened):
        number = int(opened[0].prompt[-1]["content"].split()[2].rstrip(","))
        assert ask(cells, 0, "say", number=number).content == "right"
        assert ask(cells, 0, "say", number=1000).content == "{'error': 'the episode is over'}"
        assert scores(cells, 0) == [1.0]


def test_what_reset_returned_is_compared_when_a_shard_is_made_again(server, tmp_path):
    run = build(Case(says="adds", num_steps=1), tmp_path / "model")
    environment = config(server, action="message", max_tool_calling_iterations=1)
    rewards = RewardsConfig(terms=({"type": "get_reward", "environment": "OpenEnv"},))
    changes = {"environment": environment, "rewards": rewards}
    workers = Workers(replace(run, config=run.config.model_copy(update=changes)), tmp_path / "run")
    try:
        file = workers.sample(0).file.path
        (tmp_path / "run" / file).unlink()
        server.kill()
        server.start(first=1000)
        again = workers.sample(0)
    finally:
        workers.close()
    shard = workers.store.read_record(again.file, GeneratedShard)
    for made in (each for group in shard.groups for each in group.completions):
        assert made.differing_answer.startswith("reset: ") and made.episode.failure is None
