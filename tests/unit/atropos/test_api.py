"""The trainer's side of Atropos' API server."""

import asyncio
import time
from dataclasses import replace

import pytest

from mortal_steps.atropos import api
from mortal_steps.atropos.api import AtroposApi, Registration
from mortal_steps.errors import BatchSourceError
from tests.support.atropos.groups import make_group
from tests.support.atropos.stub import AtroposStub
from tests.support.refused import refused

WANTED = Registration(
    wandb_group="run-1",
    wandb_project="",
    batch_size=8,
    max_token_len=16,
    checkpoint_dir="/runs/run-1",
    save_checkpoint_interval=0,
    starting_step=0,
    num_steps=10,
)


def ask(stub, wanted=WANTED, *, batches=1, stop_once=None):
    """Return the next batches of a trainer, which is stopped once something holds."""

    async def go():
        server = AtroposApi(stub.url, wanted, poll_s=0.02, vocabulary=None)
        stopping = asyncio.Event()

        async def stop():
            while stop_once is None or not stop_once():
                await asyncio.sleep(0.01)
            stopping.set()

        watching = asyncio.create_task(stop())
        try:
            async with asyncio.timeout(60):
                return [await server.next_batch(stopping) for _ in range(batches)]
        finally:
            watching.cancel()
            await server.close()

    return asyncio.run(go())


def test_a_trainer_registers_and_gets_whole_batches():
    groups = [make_group(number) for number in range(4)]
    with AtroposStub(groups) as stub:
        first, second = ask(stub, batches=2)
    assert [*first, *second] == groups
    assert stub.registered["batch_size"] == 8
    assert stub.registered["wandb_group"] == "run-1"


def test_a_run_that_is_resumed_finds_its_registration():
    with AtroposStub([make_group(number) for number in range(4)]) as stub:
        ask(stub)
        ask(stub, replace(WANTED, starting_step=1))
    assert stub.registered["starting_step"] == 0
    assert len(stub.served) == 2


@pytest.mark.parametrize("changed", [{"wandb_group": "run-2"}, {"batch_size": 4}])
def test_the_registration_of_another_trainer_is_told_of(changed):
    with AtroposStub([make_group(number) for number in range(4)]) as stub:
        ask(stub)
        (name,) = changed
        said = rf"registered for another trainer \({name} = .*run-api of its own"
        with pytest.raises(BatchSourceError, match=said):
            ask(stub, replace(WANTED, **changed))
    assert len(stub.served) == 1


def test_a_registration_that_differs_in_what_decides_no_number_is_the_runs_own():
    with AtroposStub([make_group(number) for number in range(4)]) as stub:
        ask(stub)
        ask(stub, replace(WANTED, wandb_project="other", checkpoint_dir="/moved", num_steps=20))
    assert len(stub.served) == 2


def test_a_server_that_was_started_anew_is_registered_at_again():
    with AtroposStub([make_group(0), make_group(1)]) as stub:
        ask(stub)
        stub.registered, stub.queue = None, [make_group(2), make_group(3)]

        async def go():
            server = AtroposApi(stub.url, WANTED, poll_s=0.02, vocabulary=None)
            server._registered = True
            found = await server.next_batch(asyncio.Event())
            await server.close()
            return found

        assert asyncio.run(go()) == [make_group(2), make_group(3)]


@pytest.fixture
def looks_often(monkeypatch):
    monkeypatch.setattr(api, "REMIND_S", 0.0)


@pytest.mark.usefixtures("looks_often")
def test_groups_that_never_make_a_batch_are_told_of():
    stub = AtroposStub([make_group(number, size=3) for number in range(6)])
    said = r"8 is no multiple of 3, .*group_size"
    with stub, pytest.raises(BatchSourceError, match=said):
        ask(stub)


def test_groups_that_do_not_make_a_batch_yet_are_waited_for():
    with AtroposStub([make_group(0)]) as stub:
        stub.failing = {"/status": 404, "/latest_example": 404}  # not even looked at
        assert ask(stub, stop_once=lambda: stub.asked > 3) == [None]


@pytest.mark.usefixtures("looks_often")
@pytest.mark.parametrize(
    "path, status", [("/latest_example", 500), ("/status", 0), ("/info", 0), ("/status", 502)]
)
def test_an_answer_without_a_batch_may_fail(path, status):
    with AtroposStub([make_group(0)]) as stub:
        stub.failing = {path: status}
        assert ask(stub, stop_once=lambda: stub.asked > 3 and not stub.failing) == [None]


def test_an_answer_that_is_cut_off_is_not_asked_for_again():
    with AtroposStub([make_group(number) for number in range(4)]) as stub:
        stub.sends = 0.5
        with pytest.raises(BatchSourceError, match=r"cut off .*sends each only once"):
            ask(stub)
        assert stub.asked == 1


def test_an_answer_that_does_not_come_in_time_is_not_asked_for_again(monkeypatch):
    monkeypatch.setattr(api, "TIMEOUT", api.httpx.Timeout(5.0, read=0.2))
    with AtroposStub([make_group(number) for number in range(4)]) as stub:
        stub.hang_s = 0.6
        with refused(BatchSourceError, "ReadTimeout", "Resume"):
            ask(stub)
        assert stub.asked == 1


def test_unusable_batches_are_told_of_and_end_the_run_if_no_other_comes(caplog):
    broken = make_group(0, scores=[1.0])
    with AtroposStub([broken, make_group(1), make_group(2), make_group(3)]) as stub:
        assert ask(stub) == [[make_group(2), make_group(3)]]
    assert "scores has 1 entries" in caplog.text
    with AtroposStub([broken, make_group(1)] * 4) as stub:
        with refused(BatchSourceError, "3 batches", "scores", "1 entries"):
            ask(stub)
        assert len(stub.served) == 3


def test_a_batch_that_the_server_fails_at_is_left_out(caplog):
    with AtroposStub([make_group(0), make_group(1)]) as stub:
        stub.errors = [500]
        assert len(ask(stub)[0]) == 2
    assert "answered 500" in caplog.text


def test_a_proxy_whose_server_is_away_is_waited_for(monkeypatch, caplog):
    with AtroposStub([make_group(0), make_group(1)]) as stub:
        stub.errors = [502, 503, 504]
        assert len(ask(stub)[0]) == 2
        assert "answered 502" in caplog.text
        stub.errors = [502] * 100
        monkeypatch.setattr(api, "PATIENCE_S", 0.2)
        with refused(BatchSourceError, "502"):
            ask(stub)


def test_batches_without_anything_to_learn_from_are_told_of(caplog):
    masked = [make_group(number) for number in range(2)]
    for group in masked:
        group["masks"] = [[-100] * len(row) for row in group["tokens"]]
    equal = [make_group(number, scores=[0.7] * 4) for number in range(2)]
    with AtroposStub([*masked, *equal]) as stub:
        assert ask(stub) == [equal]
    assert "leave no token to train on" in caplog.text
    assert "all advantages of a batch are 0" in caplog.text


@pytest.mark.usefixtures("looks_often")
@pytest.mark.parametrize("path", ["/batch", "/latest_example", "/status"])
def test_an_answer_that_is_no_json_is_told_of(path):
    with AtroposStub([make_group(0)]) as stub:
        stub.garbled = path
        with pytest.raises(BatchSourceError, match=rf"{path} answers no JSON"):
            ask(stub)


def test_a_server_is_waited_for_but_not_for_ever(monkeypatch, caplog):
    with AtroposStub() as stub:
        pass
    began = time.monotonic()
    monkeypatch.setattr(api, "PATIENCE_S", 0.2)
    with pytest.raises(BatchSourceError, match=r"has been away .*start atroposlib's run-api"):
        ask(stub)
    assert time.monotonic() - began < 5
    assert f"waiting for {stub.url}" in caplog.text


def test_what_is_no_server_of_atropos_is_told_of():
    with AtroposStub() as stub:
        stub.answer = lambda path, body: (404, {})
        with refused(BatchSourceError, "/info", "404", "run-api"):
            ask(stub)
