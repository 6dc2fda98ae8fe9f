"""What becomes of an episode whose agent fails: it is run again, then masked, or the run stops. It
is never scored 0."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from mortal_steps.environments.gateway.episodes import GatewayEpisodes
from mortal_steps.environments.processes.host import environment_host
from mortal_steps.errors import EnvironmentFailedError
from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from mortal_steps.rollout.episodes.base import ToolSettings
from mortal_steps.types import PolicyVersion
from tests.support.environments.cases import Case, asking, build
from tests.support.environments.engine import ScriptedEngine


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    run = build(Case(says="adds", functions=(), budget=300), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    engine = ScriptedEngine(
        model_path=str(folder),
        model=run.config.model,
        rollout=run.config.rollout,
        tokenizer=lambda: tokenizer,
    )
    config = asking(run, "shopping").config
    host = environment_host(config.environment, {})
    yield SimpleNamespace(run=run, tokenizer=tokenizer, engine=engine, host=host)
    host.close()


@pytest.fixture
def play(shared, tmp_path):
    return partial(played, shared, tmp_path)


@pytest.fixture(scope="module")
def undisturbed(shared, tmp_path_factory):
    return played(shared, tmp_path_factory.mktemp("undisturbed"))


def played(shared, folder, trouble="", budget=300, **options):
    """Sample a shard of two problems with four episodes each; the agent is in trouble after the
    second turn of an episode of the first problem, or of all that have one."""
    given = {"retries": 1, "on_error": "mask", "timeout_s": 20.0, **options}
    config = asking(shared.run, "shopping", **given).config
    episodes = GatewayEpisodes(
        tokenizer=shared.tokenizer,
        template_options={},
        environment=config.environment,
        rewards=config.rewards,
        chat=settle_chat(shared.tokenizer, "qwen3"),
        settings=ToolSettings(),
        run_dir=folder,
    )
    episodes._host = shared.host  # its start takes seconds
    columns = {"trouble": f"{trouble}:{folder}"} if trouble else {}
    first, second = shared.run.batch(0)
    problems = [replace(first, columns={**first.columns, **columns}), second]
    try:
        groups = episodes.sample(
            shared.engine,
            problems,
            [[1, 2, 3, 4], [5, 6, 7, 8]],
            replace(config.sampling, max_tokens=budget),
            PolicyVersion(0),
        )
    finally:
        episodes._server.close()
    return [made for group in groups for made in group.completions]


@pytest.mark.parametrize("trouble", ["kill", "hang", "outage", "raise"])
def test_an_agent_that_fails_once_is_run_again_with_the_same_bits(play, undisturbed, trouble):
    limit = {"timeout_s": 6.0} if trouble == "hang" else {}
    assert play(trouble, **limit) == undisturbed
    assert all(made.episode.scores["shopping"] > 0 for made in undisturbed)


class Shopkeeper(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *said):
        pass


ASKED_TWICE = "asked again in a new process in 2 s"


@pytest.fixture
def away(tmp_path, caplog):
    """A server that is there once two attempts have failed; agents find its port in their
    folder."""
    with HTTPServer(("127.0.0.1", 0), Shopkeeper, bind_and_activate=False) as server:
        server.server_bind()  # nobody else gets its port, which refuses whoever comes until then
        (tmp_path / "port").write_text(str(server.server_port))
        is_over = threading.Event()

        def come_back():
            while ASKED_TWICE not in caplog.text:
                if is_over.wait(0.1):
                    return
            server.server_activate()
            server.timeout = 0.1
            while not is_over.is_set():
                server.handle_request()

        with ThreadPoolExecutor(1) as threads:
            threads.submit(come_back)
            yield
            is_over.set()


@pytest.mark.usefixtures("away")
def test_a_server_that_comes_back_is_waited_for_with_the_same_bits(play, undisturbed, caplog):
    assert play("always-ask") == undisturbed
    assert "Connection refused" in caplog.text
    assert ASKED_TWICE in caplog.text


REASONS = {
    "always-kill": "its process ended (SIGKILL)",
    "always-hang": "neither asked nor ended within 6 s",
    "always-outage": "ConnectionError: the shop is away",
    "always-raise": "KeyError: 'a slip'",
    "always-rewrite": "rewrote what was said before",
    "differ": "something else when it is run again",
}
LASTS = ("always-hang", "always-outage")


@pytest.mark.parametrize("trouble", REASONS)
def test_one_that_keeps_failing_is_masked_and_others_are_as_they_were(play, undisturbed, trouble):
    limit = {"timeout_s": 6.0} if trouble in LASTS else {}
    found = play(trouble, **limit)
    failed = [made for made in found if made.episode.failure is not None]
    assert failed
    for made in failed:
        assert REASONS[trouble] in made.episode.failure
        assert (made.episode.scores, made.episode.stop) == ({}, "failed")
    assert found[4:] == undisturbed[4:]
    same = [each for each in zip(undisturbed, found, strict=True) if each[1] not in failed]
    assert same
    for before, after in same:  # those of a group share the ids of the first one's prompt
        assert replace(before, prompt_ids=None) == replace(after, prompt_ids=None)


@pytest.mark.parametrize("trouble", [name for name in REASONS if name != "always-rewrite"])
def test_or_the_run_stops_and_says_where(play, trouble):
    limit = {"timeout_s": 6.0} if trouble in LASTS else {}
    with pytest.raises(EnvironmentFailedError) as stopped:
        play(trouble, on_error="raise", **limit)
    assert REASONS[trouble] in str(stopped.value)
    assert "problem train-" in str(stopped.value)


def test_the_last_branch_can_be_trained(play):
    found = play("always-rewrite", on_branch="last")
    branched = [made for made in found if made.prompt[0]["content"].startswith("Forget it.")]
    assert branched
    for made in branched:
        assert made.episode.failure is None
        assert made.turns[0].start == 0
        assert made.prompt[-1]["role"] == "tool"


def test_what_has_no_room_left_ends_there(play):
    found = play(budget=70)
    stops = {made.episode.stop for made in found}
    assert "length" in stops
    assert all(len(made.token_ids) <= 70 for made in found)
    assert all(made.episode.scores["shopping"] > 0 for made in found)


def test_turns_have_a_limit(play):
    found = play(max_tool_calling_iterations=1)
    assert {len(made.turns) for made in found} == {1, 2}
    assert "max_iterations" in {made.episode.stop for made in found}
