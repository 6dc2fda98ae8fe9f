"""A train step may be given a batch of a kind that MORTAL does not know: a class of the user's."""

import dataclasses
import pickle

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.policy import journal
from mortal_steps.policy.batches import Batch, Rows, ScoredRollouts, TrainRequest
from mortal_steps.store import RunStore
from mortal_steps.store.json_record import adapter
from mortal_steps.types import FileRef


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice(Batch):
    """Rows [first, stop) of a dataset that was prepared once."""

    dataset: FileRef
    first: int
    stop: int

    def files(self):
        return [self.dataset]

    def content(self, records):
        return {"dataset": self.dataset.sha256, "first": self.first, "stop": self.stop}

    def read(self, records, step, plan):
        return records.read_record(self.dataset, list[int])[self.first : self.stop]

    def counts(self):
        return {"num_rows": self.stop - self.first}


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path)


def test_a_batch_of_a_users_own_kind_is_journaled_and_read_again(store):
    dataset = store.write_record("data/prepared.json", list(range(100)), list[int])
    given = Slice(dataset=dataset, first=8, stop=12)
    request = TrainRequest(step=3, batch=given, publish=True)
    entry = journal.JournalEntry(batch_sha256=journal.batch_digest(store, request), request=request)
    journal.write_entry(store, entry)
    found = journal.find_entry(store, 3)
    assert found == entry
    assert found.request.batch.read(store, 3, None) == [8, 9, 10, 11]
    journal.check_entry(store, 3)
    assert len(store.path("steps/000003/journal.json").read_bytes()) < 600
    other = dataclasses.replace(request, batch=dataclasses.replace(given, stop=13))
    assert journal.batch_digest(store, other) != entry.batch_sha256


def test_batches_of_the_first_version_have_no_name(store):
    file = FileRef(path="data/rows.json", sha256="0" * 64)
    rows = {"rows": dataclasses.asdict(file), "num_rows": 3}
    scored = {"rewards": []}
    for values, kind in ((rows, Rows), (scored, ScoredRollouts)):
        batch = adapter(Batch).validate_python(values)
        assert type(batch) is kind
        assert adapter(Batch).dump_python(batch, mode="json") == values


def test_a_batch_of_an_unknown_kind_is_named():
    for values in ({"kind": "tests.nowhere:Slice"}, {"kind": "slice", "first": 1}, {"first": 1}):
        with pytest.raises((ValueError, ConfigError), match=r"nowhere|slice|first"):
            adapter(Batch).validate_python(values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weighed(ScoredRollouts):
    """A kind that is derived from one of MORTAL's."""

    weight: float = 1.0


def test_a_kind_that_is_derived_from_another_is_read_as_itself():
    batch = Weighed(rewards=[], weight=0.5)
    written = adapter(Batch).dump_python(batch, mode="json")
    assert written["kind"].endswith(":Weighed")
    assert adapter(Batch).validate_python(written) == batch == pickle.loads(pickle.dumps(batch))
