"""Which calls of an earlier flow are attached to, and what becomes of the others."""

from dataclasses import replace

import pytest
from modal import FunctionCall, exception

from mortal_steps.errors import (
    ComputeError,
    LeaseLostError,
    StoreError,
    TransientError,
    WorkerLostError,
)
from mortal_steps.places.modal import retry
from mortal_steps.places.modal.calls import Calls
from mortal_steps.places.modal.messages import CallResult
from mortal_steps.store import RunStore
from tests.support.modal.requests import REQUEST

OTHER = replace(REQUEST, payload={"step": 4})
NEXT = replace(REQUEST, lease=2)
REFUSED = CallResult(error=LeaseLostError("the run has had a lease since"))


class Account:
    """Modal's side of the calls: what each gives, and what was asked for."""

    def __init__(self):
        self.gives = {}
        self.cancelled = []
        self.spawned = 0
        self.spawn = self._aio(self._spawn)

    def call(self, call_id):
        call = type("Call", (), {"object_id": call_id})()
        call.get, call.cancel = self._aio(self._get, call_id), self._aio(self._cancel, call_id)
        return call

    def _spawn(self, request):
        self.spawned += 1
        return self.call(f"fc-{self.spawned}")

    def _get(self, call_id, timeout):
        answer = self.gives.get(call_id, TimeoutError())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _cancel(self, call_id, terminate_containers):
        self.cancelled.append(call_id)

    @staticmethod
    def _aio(answer, *known):
        async def aio(*arguments, **options):
            return answer(*known, *arguments, **options)

        return type("Asked", (), {"aio": staticmethod(aio)})


@pytest.fixture
def account(monkeypatch):
    account = Account()
    monkeypatch.setattr(FunctionCall, "from_id", account.call)
    monkeypatch.setattr(retry, "LONGEST_DELAY_S", 0.01)
    return account


@pytest.fixture
def calls(tmp_path):
    return Calls(RunStore(tmp_path), deadline_s=0.1)


async def test_a_call_is_kept_until_its_outcome_is_taken(account, calls):
    account.gives["fc-1"] = exception.AuthError("the token is gone")
    with pytest.raises(ComputeError, match="modal setup"):
        await calls.result("actor/a", account, REQUEST)
    account.gives["fc-1"] = exception.ConnectionError("no route")
    with pytest.raises(TransientError, match="cannot be reached"):
        await calls.result("actor/a", account, REQUEST)
    account.gives["fc-1"] = CallResult(value=3)
    assert (await calls.result("actor/a", account, REQUEST)).value == 3
    assert (account.spawned, account.cancelled) == (1, [])

    account.gives["fc-2"] = CallResult(value=4)
    assert (await calls.result("actor/a", account, REQUEST)).value == 4, "asked for anew"


async def test_what_nobody_asks_for_any_more_is_cancelled(account, calls):
    account.gives["fc-1"] = exception.AuthError("the token is gone")
    for key in ("actor/a", "actor/b"):
        with pytest.raises(ComputeError):
            account.gives[f"fc-{account.spawned + 1}"] = exception.AuthError("the token is gone")
            await calls.result(key, account, REQUEST)
    account.gives["fc-3"] = CallResult(value=4)
    assert (await calls.result("actor/a", account, OTHER)).value == 4
    assert account.cancelled == ["fc-1"], "what it asked for was another thing"
    await calls.cancel_all()
    assert account.cancelled == ["fc-1", "fc-2"]
    await calls.cancel_all()
    assert len(account.cancelled) == 2


async def test_a_call_that_modal_does_not_know_is_lost(account, calls):
    account.gives["fc-1"] = exception.NotFoundError("no such call")
    with pytest.raises(WorkerLostError, match="fc-1"):
        await calls.result("actor/a", account, REQUEST)
    account.gives["fc-2"] = CallResult(value=3)
    assert (await calls.result("actor/a", account, REQUEST)).value == 3


async def test_a_call_whose_id_cannot_be_kept_is_cancelled(account, calls, tmp_path):
    (tmp_path / "calls").write_text("in the way of the folder")
    with pytest.raises(StoreError, match="calls"):
        await calls.result("actor/a", account, REQUEST)
    assert (account.spawned, account.cancelled) == (1, ["fc-1"])


async def test_what_an_earlier_flow_asked_too_late_is_asked_anew(account, calls):
    """Its call is attached to; but if it had not begun, the container refuses its lease."""
    for fc, then in (("fc-1", CallResult(value=3)), ("fc-2", REFUSED)):
        account.gives[fc] = exception.AuthError("and the flow dies")
        with pytest.raises(ComputeError):
            await calls.result("actor/a", account, REQUEST)
        account.gives |= {fc: then, "fc-3": CallResult(value=4)}
        assert (await calls.result("actor/a", account, NEXT)).value in (3, 4)
    assert account.spawned == 3
    account.gives["fc-4"] = REFUSED
    result = await calls.result("actor/a", account, NEXT)
    assert type(result.error) is LeaseLostError, "its own lease: another flow has the run"
    assert (account.spawned, account.cancelled) == (4, [])
