"""Records that travel with requests and results, and what is committed."""

from dataclasses import replace

import pytest

from mortal_steps.errors import CorruptFileError, LeaseLostError, WorkerLostError
from mortal_steps.places.modal import messages
from mortal_steps.places.modal.inside.host import WorkerHost
from mortal_steps.store.files import write_atomically
from mortal_steps.types import (
    Problem,
)
from tests.support.modal.requests import REQUEST
from tests.support.modal.travel import MADE, PROBLEMS


class Copies:
    """A worker that writes what it reads under another name, and answers with both."""

    def __init__(self, store):
        self._store = store
        self.ended = False

    def has_ended(self, role):
        return self.ended

    def call(self, role, method, payload, label):
        if method == "taken away":
            raise KeyboardInterrupt
        if method in ("broken", "reports a loss"):
            self.ended = method == "broken"
            raise WorkerLostError("actor ended: an illegal memory access was encountered")
        batch = payload["request"]["batch"]
        assert self._store.read_record(batch, list[Problem]) == PROBLEMS
        made = self._store.write_record("steps/000000/made.json", MADE, list[Problem])
        return {"of": batch, "made": made}


@pytest.fixture
def host(volume, there, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("MODAL_TASK_ID", "ta-1")
    host = WorkerHost(runs_dir=volume.root, run_id="run", volume=volume, volume_name=REQUEST.volume)
    host._workers, host._settings = Copies(there), REQUEST.settings
    return host


def request(method, here, batch):
    files = messages.load_records(here, [batch])
    return replace(REQUEST, method=method, payload={"request": {"batch": batch}}, files=files)


def test_what_was_made_travels_and_is_committed(host, volume, here, there, batch):
    sampled = host.call(request("generate", here, batch))
    assert list(sampled.files) == [sampled.value["made"]], "the asker has the batch"
    assert volume.asked == ["reload", "commit"]
    assert there.read_record(batch, list[Problem]) == PROBLEMS


def test_a_container_whose_worker_is_lost_commits_and_ends(host, volume, here, batch, monkeypatch):
    class Ended(BaseException):
        pass

    def end(code):
        raise Ended

    monkeypatch.setattr("os._exit", end)
    with pytest.raises(Ended):
        host.call(request("broken", here, batch))
    assert volume.asked[:2] == ["reload", "commit"]


def test_a_worker_that_reports_the_loss_of_something_else_stays(host, volume, here, batch):
    """Such as that of a reward host, which it can start again."""
    result = host.call(request("reports a loss", here, batch))
    assert type(result.error) is WorkerLostError
    assert volume.asked == ["reload", "commit"]


def test_what_is_too_large_goes_by_the_volume(host, volume, here, batch, monkeypatch):
    asked = request("generate", here, batch)
    monkeypatch.setattr(messages, "ROOM", 10)
    assert host.call(asked).files == {}
    assert volume.asked == ["reload", "commit"]


def test_a_reload_waits_for_files_that_are_still_written(host, volume, here, batch, monkeypatch):
    """As of an actor that syncs the version it has published beside its next call."""
    still_open, reload = [4, 3, 2, 1], volume.reload

    def refused_beside_files():
        if still_open:
            still_open.pop()
            raise RuntimeError("there are open files preventing the operation")
        reload()

    monkeypatch.setattr(volume, "reload", refused_beside_files)
    assert host.call(request("train_step", here, batch)).error is None
    assert volume.asked == ["reload", "commit"]
    monkeypatch.setattr("mortal_steps.places.modal.inside.host.FILES_OPEN_S", 0.0)
    still_open += [1]
    with pytest.raises(RuntimeError, match="open files"):
        host.call(request("train_step", here, batch))


def test_a_container_that_is_taken_away_commits(host, volume, here, batch):
    with pytest.raises(KeyboardInterrupt):
        host.call(request("taken away", here, batch))
    assert volume.asked == ["reload", "commit"]


def test_nothing_of_a_flow_that_lost_its_run_is_written(host, here, there, batch):
    write_atomically(there.path("leases/2"), b"process 7 on another machine\n")
    result = host.call(request("train_step", here, batch))
    assert type(result.error) is LeaseLostError
    assert not there.path(batch.path).exists()


def test_what_arrives_otherwise_than_it_was_sent_is_refused(host, here, there, batch):
    damaged = {batch: here.path(batch.path).read_bytes().replace(b"ab=", b"ba=")}
    result = host.call(replace(request("train_step", here, batch), files=damaged))
    assert type(result.error) is CorruptFileError
    assert not there.path("steps/000000/made.json").exists()
