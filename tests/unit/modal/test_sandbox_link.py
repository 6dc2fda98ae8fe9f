"""mortal_steps.places.modal.environments: how a link to a Sandbox begins and is lost."""

import asyncio
import queue
from types import SimpleNamespace

import pytest

from mortal_steps.config import ModalConfig
from mortal_steps.errors import TransientError
from mortal_steps.places.modal import environments
from mortal_steps.places.modal.environments import SandboxLink

PATIENCE_S = 10.0


async def pieces(*contents, then=None):
    for content in contents:
        yield content
    if isinstance(then, Exception):
        raise then
    if then is not None:
        await asyncio.sleep(then)


def calls(work):
    return SimpleNamespace(aio=work)


class Sandbox:
    object_id = "sb-1"

    def __init__(self, begin):
        self.is_terminated = False
        self.exec, self.terminate = calls(begin), calls(self._end)

    async def _end(self):
        self.is_terminated = True


@pytest.fixture
def link(monkeypatch):
    """Make a link to a Sandbox whose command `begin` returns; give what it says of its end."""
    links, sandboxes = [], []

    def make(begin):
        async def create(options, needed):
            sandboxes.append(Sandbox(begin))
            return sandboxes[-1]

        monkeypatch.setattr(environments, "_create", create)
        told = queue.SimpleQueue()
        links.append(SandboxLink(ModalConfig(), (), lambda content: None, told.put))
        return told

    make.sandboxes, make.links = sandboxes, links
    yield make
    for each in links:
        each.close()


def process(*, output=PATIENCE_S, log=(), log_then=None, write=lambda content: None):
    async def begin(*command, **options):
        return SimpleNamespace(
            stdout=pieces(then=output or None),
            stderr=pieces(*log, then=log_then),
            stdin=SimpleNamespace(write=write, drain=calls(lambda: asyncio.sleep(0))),
        )

    return begin


def test_its_end_is_told_also_where_its_last_words_cannot_be_read(link):
    told = link(process(output=0, log_then=ConnectionResetError("reset")))
    assert told.get(timeout=PATIENCE_S) == "its Modal Sandbox sb-1 ended: "


def test_its_last_words_control_no_terminal(link, capsys):
    told = link(process(output=0, log=(b"\x1b[2J\xc3", b"\xa4\n")))
    assert told.get(timeout=PATIENCE_S).endswith("ended: \\x1b[2Jä")
    assert capsys.readouterr().err == "\\x1b[2Jä\n"


def test_one_that_takes_no_input_is_lost(link, monkeypatch):
    def refuse(content):
        raise BrokenPipeError("closed")

    monkeypatch.setattr(environments, "ALIVE_EVERY_S", 0.1)
    monkeypatch.setattr(environments, "CLOSE_S", 0.1)
    told = link(process(write=refuse))
    assert "BrokenPipeError: closed" in told.get(timeout=PATIENCE_S)


def test_one_that_is_closed_right_behind_what_was_sent_leaves_no_work_pending(link):
    for _ in range(20):
        link(process())
        closed = link.links.pop()
        closed.send(b"the last order")
        closed.close()
        assert all(work.done() for work in closed._work)


def test_a_command_that_does_not_begin_is_tried_again_in_another_sandbox(link):
    begin, tries = process(), []

    async def second(*command, **options):
        tries.append(command)
        if len(tries) == 1:
            raise ConnectionResetError("reset")
        return await begin()

    link(second)
    assert [each.is_terminated for each in link.sandboxes] == [True, False]


def test_one_that_does_not_begin_in_time_may_do_so_later(link, monkeypatch):
    monkeypatch.setattr(environments, "BEGIN_S", 0.1)

    async def hang(*command, **options):
        await asyncio.sleep(PATIENCE_S)

    with pytest.raises(TransientError, match=r"not begun within 0\.1 s"):
        link(hang)
    assert link.sandboxes[0].is_terminated
