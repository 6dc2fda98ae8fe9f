"""Code that is run again, requests at the same time, and clocks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "Hello there."}
MORE = {"role": "user", "content": "and now?"}


def test_code_that_is_run_again_is_answered_as_before_and_goes_on(play):
    played = play().says("Hello there.", "Now it is late.")
    first = played.ask(HI)
    played.session.begin()
    assert played.ask(HI) == first
    assert played.ask(HI, HELLO, MORE).choices[0].message.content == "Now it is late."
    played.session.check_same()


def test_code_that_asks_for_something_else_when_it_is_run_again_has_failed(play):
    played, stopped = play().says("Hello there."), []
    played.session.stop_playing = lambda: stopped.append(True)
    played.ask(HI)
    played.session.begin()
    with pytest.raises(openai.BadRequestError, match="something else when it is run again"):
        played.ask({**HI, "content": "hey"})
    assert stopped
    assert "something else" in played.session.fault.reason
    assert len(played.seen) == 1


def test_requests_at_the_same_time_are_served_one_after_another(play):
    texts = ["one", "two", "three", "four"]
    played = play().says(*texts)
    with ThreadPoolExecutor(4) as threads:
        asked = [{"role": "user", "content": text} for text in texts]
        found = [each.choices[0].message.content for each in threads.map(played.ask, asked)]
    assert sorted(found) == sorted(texts)
    assert len(played.seen) == 4


def test_code_that_takes_too_long_is_stopped(play):
    played, stopped = play().says("Hello there."), threading.Event()
    played.session.stop_playing = stopped.set
    played.sessions._timeout_s = 0.2
    played.ask(HI)
    assert stopped.wait(20)
    assert played.session.is_late
