"""Records that travel with orders and outcomes: what is committed, and what is still owed."""

import asyncio
from dataclasses import replace

import pytest

from mortal_steps.compute.modal import cargo, mirror
from mortal_steps.compute.modal.host import Outcome, WorkerHost
from mortal_steps.compute.modal.mirror import Mirror
from mortal_steps.errors import CorruptFileError, LeaseLostError, TransientError
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.types import FileRef, Problem
from tests.support.modal.orders import ORDER

PROBLEMS = [Problem(id="train-0", prompt="ab=")]
MADE = [Problem(id="train-0", prompt="made of it")]


class Volume:
    """A Volume that is a folder, as both sides see it; counts what is asked of it."""

    name = "mortal-runs"

    def __init__(self, root):
        self.root = root
        self.asked = []
        self.away = None

    def reload(self):
        self.asked.append("reload")

    def commit(self):
        self.asked.append("commit")

    async def find(self, path):
        file = self.root / path
        return file.read_bytes() if file.exists() else None

    async def read(self, path):
        self.asked.append("read")
        return (self.root / path).read_bytes()

    async def upload(self, files):
        if self.away:
            raise self.away
        self.asked.append("upload")
        for path, content in files.items():
            write_atomically(self.root / path, content)

    async def files(self, folder):
        return []


class Copies:
    """A worker that writes what it reads under another name, and answers with both."""

    def __init__(self, store):
        self._store = store

    def call(self, role, method, payload, label):
        if method == "taken away":
            raise KeyboardInterrupt
        assert self._store.read_record(payload["batch"], list[Problem]) == PROBLEMS
        made = self._store.write_record("steps/000000/made.json", MADE, list[Problem])
        return {"of": payload["batch"], "made": made}


@pytest.fixture
def volume(tmp_path):
    return Volume(tmp_path / "volume")


@pytest.fixture
def there(volume):
    """The run on the Volume."""
    return RunStore(volume.root / "run")


@pytest.fixture
def here(tmp_path):
    """The flow's run directory, with a batch in it."""
    return RunStore(tmp_path / "here/run")


@pytest.fixture
def batch(here):
    return here.write_record("steps/000000/batch.json", PROBLEMS, list[Problem])


@pytest.fixture
def host(volume, there, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    host = WorkerHost(
        runs_dir=volume.root, run_id="run", volume=volume, volume_name=ORDER.volume, node=False
    )
    host._crew, host._settings = Copies(there), ORDER.settings
    return host


def order(method, here, batch, *, room=cargo.ROOM, **changed):
    files = cargo.load(here, [batch], cargo.ROOM)
    return replace(
        ORDER, method=method, payload={"batch": batch}, files=files, room=room, **changed
    )


def test_a_shard_travels_and_a_train_step_is_committed(host, volume, here, there, batch):
    sampled = host.call(order("generate", here, batch))
    assert list(sampled.files) == [sampled.value["made"]], "the asker has the batch"
    assert (sampled.is_committed, sampled.on_volume) == (False, ())
    assert volume.asked == ["reload"]

    trained = host.call(order("train_step", here, batch))
    assert trained.files == sampled.files
    assert (trained.is_committed, trained.on_volume) == (True, (batch,))
    assert volume.asked == ["reload", "reload", "commit"]
    assert there.read_record(batch, list[Problem]) == PROBLEMS


def test_a_shard_that_is_too_large_goes_by_the_volume(host, volume, here, batch):
    sampled = host.call(order("generate", here, batch, room=10))
    assert (sampled.is_committed, sampled.files) == (True, {})
    assert volume.asked == ["reload", "commit"]


def test_a_container_that_is_taken_away_commits(host, volume, here, batch):
    with pytest.raises(KeyboardInterrupt):
        host.call(order("taken away", here, batch))
    assert volume.asked == ["reload", "commit"]


def test_nothing_of_a_flow_that_lost_its_run_is_written(host, here, there, batch):
    write_atomically(there.path("leases/2"), b"process 7 on another machine\n")
    outcome = host.call(order("train_step", here, batch))
    assert type(outcome.error) is LeaseLostError
    assert not there.path(batch.path).exists()


def test_what_arrives_otherwise_than_it_was_sent_is_refused(host, here, there, batch):
    damaged = {batch: here.path(batch.path).read_bytes().replace(b"ab=", b"ba=")}
    outcome = host.call(replace(order("train_step", here, batch), files=damaged))
    assert type(outcome.error) is CorruptFileError
    assert not there.path("steps/000000/made.json").exists()


def write(store, name, body=MADE):
    return store.write_record(f"steps/000000/{name}.json", body, list[Problem])


async def test_what_no_container_has_committed_goes_with_the_next_order_that_does(
    volume, here, there, batch, tmp_path
):
    mine = Mirror(volume, here)
    sampled = write(RunStore(tmp_path / "container"), "sampled")
    content = cargo.load(RunStore(tmp_path / "container"), [sampled], cargo.ROOM)
    assert list(await mine.load({"problems": batch}, with_all=False)) == [batch]
    await mine.pull(Outcome(value=sampled, files=content, is_committed=False))
    assert here.read_record(sampled, list[Problem]) == MADE
    scored = write(here, "scored")
    mine.take_along(scored)
    assert await mine.load({}, with_all=False) == {}

    sent = await mine.load({"rewards": [scored]}, with_all=True)
    assert set(sent) == {scored, sampled}
    assert await mine.load({"rewards": [scored]}, with_all=True) == sent, "if nobody answers"
    await mine.pull(Outcome(on_volume=tuple(sent)))
    assert await mine.load({"rewards": [scored, sampled]}, with_all=True) == {}
    assert volume.asked == []


async def test_what_is_larger_than_an_order_is_uploaded_before_it(
    volume, here, there, batch, monkeypatch
):
    monkeypatch.setattr(cargo, "ROOM", 10)
    assert await Mirror(volume, here).load({"problems": batch}, with_all=False) == {}
    assert there.read_record(batch, list[Problem]) == PROBLEMS


async def test_what_an_outcome_lacks_is_downloaded(volume, here, there):
    made = write(there, "made")
    await Mirror(volume, here).pull(Outcome(value=made))
    assert here.read_record(made, list[Problem]) == MADE
    with pytest.raises(CorruptFileError):
        await Mirror(volume, here).pull(Outcome(value=FileRef(path=made.path, sha256="0" * 64)))


async def test_the_volume_hears_where_the_run_stands_beside_the_calls(
    volume, here, there, monkeypatch
):
    monkeypatch.setattr(mirror, "KEEP_UP_S", 0.01)
    mine = Mirror(volume, here)
    async with mine.keeping_up():
        for step in (b"1", b"2"):
            write_atomically(here.path("manifest.json"), step)
            async with asyncio.timeout(5):
                while (
                    not (path := there.path("manifest.json")).exists() or path.read_bytes() != step
                ):
                    await asyncio.sleep(0.01)
        assert volume.asked == ["upload", "upload"]
        volume.away = TransientError("Modal cannot be reached")
        write_atomically(here.path("manifest.json"), b"three")
        with pytest.raises(TransientError):
            async with asyncio.timeout(5):
                while True:
                    await mine.load({}, with_all=True)
                    await asyncio.sleep(0.01)
        volume.away = None
        async with asyncio.timeout(5):
            while there.path("manifest.json").read_bytes() != b"three":
                await asyncio.sleep(0.01)
