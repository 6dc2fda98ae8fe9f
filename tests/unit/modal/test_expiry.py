"""A run that was left alone for longer than Modal keeps what it needs no Volume for."""

from types import SimpleNamespace

import modal
import pytest
from modal import exception

from mortal_steps.errors import WorkerLostError
from mortal_steps.places.modal.calls import Calls, Submitted, _digest, _path
from mortal_steps.store import RunStore
from tests.support.modal.requests import REQUEST

KEY = "actor/train_step/3/0"


@pytest.mark.parametrize(
    "answer",
    [
        exception.OutputExpiredError("expired"),
        exception.NotFoundError("no such call"),
        exception.DeserializationError("an answer in classes of an earlier release"),
    ],
)
async def test_a_call_whose_outcome_is_gone_is_asked_for_anew(tmp_path, monkeypatch, answer):
    """What it did is on the Volume: the worker answers from there."""

    class Call:
        def __init__(self):
            self.get = SimpleNamespace(aio=self._get)

        async def _get(self, timeout):
            raise answer

    monkeypatch.setattr(modal.FunctionCall, "from_id", lambda call_id: Call())
    store = RunStore(tmp_path)
    month_ago = Submitted(
        call_id="fc-1", request_sha256=_digest(REQUEST), lease=1, spawned_at=1_000_000.0
    )
    store.write_record(_path(KEY), month_ago, Submitted)
    calls = Calls(store, deadline_s=7200)
    with pytest.raises(WorkerLostError, match=r"fc-1\) was lost"):  # which the task retries
        await calls.result(KEY, SimpleNamespace(), REQUEST)
    assert list(store.path("calls").iterdir()) == []
