"""Code that is run again, requests at the same time, and clocks."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from mortal_steps.environments.gateway.episodes import ASKED
from mortal_steps.environments.gateway.session import EpisodeSessions
from mortal_steps.environments.processes import waiting
from mortal_steps.environments.processes.faults import Fault
from mortal_steps.environments.processes.waiting import Watch, waiting_in
from mortal_steps.rollout.http.messages import Asked, RefusedError

HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "Hello there."}
MORE = {"role": "user", "content": "and now?"}


def wait_until(is_true):
    ends = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_code_that_is_run_again_is_answered_as_before_and_goes_on(play):
    played = play().says("Hello there.", "Now it is late.")
    first = played.ask(HI)
    played.begin()
    assert played.ask(HI) == first
    assert played.ask(HI, HELLO, MORE).choices[0].message.content == "Now it is late."
    played.session.check_same()


def test_code_that_asks_for_something_else_when_it_is_run_again_has_failed(play):
    played, stopped = play().says("Hello there."), []
    played.session.stop_playing = lambda: stopped.append(True)
    played.ask(HI)
    played.begin()
    with pytest.raises(openai.BadRequestError, match="something else when it is run again"):
        played.ask({**HI, "content": "hey"})
    assert stopped
    assert "something else" in played.session.fault.reason
    assert len(played.seen) == 1


def test_code_that_does_not_await_its_answer_has_failed(play):
    played = play().says("Hello there.")
    played.may_say.clear()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(played.ask, HI)
        wait_until(lambda: played.session.pending is not None)
        with pytest.raises(openai.BadRequestError, match="before it has its answer"):
            played.ask({**HI, "content": "hey"})
        again = threads.submit(played.ask, HI)  # as clients do whose patience has ended
        played.may_say.set()
        assert first.result() == again.result()
    assert "before it has its answer" in played.session.fault.reason
    assert "asyncio.Lock" in played.session.fault.remedy


def test_an_agent_with_a_lock_asks_for_several_things_by_turns(play):
    played = play().says("Hello there.", "Now it is late.", "Early.")
    asked = [{**HI, "content": text} for text in ("hey", "ho", "hi")]

    async def vote():
        lock = asyncio.Lock()
        async with openai.AsyncOpenAI(base_url=played.base_url, api_key="-") as client:

            async def ask(message):
                async with lock:
                    found = await client.chat.completions.create(model="any", messages=[message])
                    return found.choices[0].message.content

            return await asyncio.gather(*map(ask, asked))

    assert asyncio.run(vote()) == ["Hello there.", "Now it is late.", "Early."]
    assert played.session.fault is None


def test_an_agent_that_is_waited_for_is_named(play, tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "TELL_EVERY_S", 0.05)
    sessions, conversation = EpisodeSessions(timeout_s=30), play().conversation
    session = sessions.add(conversation)
    session.begin()
    asked = {session.key: [ASKED]}
    with (
        ThreadPoolExecutor(1) as threads,
        Watch(tmp_path / "generations-2-calls", 4, [[session.key]], asked) as watch,
    ):
        waits = threads.submit(sessions.wait, watch)
        wait_until(lambda: waiting_in(tmp_path))
        [found] = waiting_in(tmp_path).items()
        session.end()
        assert waits.result() == []
    shard, told = found
    assert (shard, told.round, told.named) == ("2", 4, "agent")
    assert (told.num_waiting, told.num_episodes) == (1, 1)
    assert waiting_in(tmp_path) == {}


def test_code_that_ends_before_it_has_its_answer_has_no_score(play):
    played = play().says("Hello there.")
    played.may_say.clear()
    impatient = played.client.with_options(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        impatient.chat.completions.create(model="any", messages=[HI])
    wait_until(lambda: played.session.pending is not None)
    with pytest.raises(Fault, match="ended before the model had answered"):
        played.session.check_heard()
    played.may_say.set()
    wait_until(lambda: played.session.pending is None)
    played.begin()
    assert played.ask(HI).choices[0].message.content == "Hello there."
    played.session.check_heard()


def test_what_an_earlier_attempt_asks_is_not_heeded(play):
    played = play().says("Hello there.", "Now it is late.")
    played.ask(HI)
    before = played.session.attempt
    played.begin()
    asked = Asked(messages=[HI], tools=(), known_as=["hey"])
    with pytest.raises(RefusedError, match="attempt has ended"):
        played.session.ask(asked, before)
    played.session.check_heard()


def test_asking_for_the_same_again_and_being_refused_take_time(play):
    played, stopped = play(most_turns=1).says("Hello there."), threading.Event()
    played.session.stop_playing = stopped.set
    played.sessions._timeout_s = 1.0
    played.ask(HI)
    ends = time.monotonic() + 20
    while not stopped.is_set() and time.monotonic() < ends:
        played.ask(HI)
        with pytest.raises(openai.BadRequestError):
            played.ask(HI, HELLO, MORE)
    assert played.session.is_late


def test_what_cannot_be_answered_for_reasons_of_ours_is_no_answer(play, monkeypatch):
    played = play()
    monkeypatch.setattr(played.conversation, "take", lambda asked: 1 / 0)
    with pytest.raises(openai.BadRequestError, match="could not be answered"):
        played.ask(HI)
    assert "ZeroDivisionError" in played.session.fault.reason


def test_code_that_takes_too_long_is_stopped(play):
    played, stopped = play().says("Hello there."), threading.Event()
    played.session.stop_playing = stopped.set
    played.sessions._timeout_s = 0.2
    played.ask(HI)
    assert stopped.wait(20)
    assert played.session.is_late


def test_an_agent_may_shorten_what_there_is_no_room_for(play):
    played = play(most_tokens=60).says("Hello there.", "Now it is late.")
    played.ask(HI)
    for words in (80, 800):
        with pytest.raises(openai.BadRequestError, match="no room"):
            played.ask(HI, HELLO, {**MORE, "content": "now " * words})
    answer = played.ask(HI, HELLO, MORE).choices[0]
    assert answer.message.content == "Now it is late."
    running = played.conversation.running
    assert played.seen[1] == running.prompt_ids + running.token_ids[: running.turns[1].start]
    assert (running.stop, played.session.refused) == ("done", "")


def test_why_one_attempt_was_refused_says_nothing_of_the_next(play):
    played = play(most_turns=1).says("Hello there.")
    played.ask(HI)
    with pytest.raises(openai.BadRequestError):
        played.ask(HI, HELLO, MORE)
    assert played.session.refused
    played.begin()
    played.ask(HI)
    assert not played.session.refused
