"""A dataset that is prepared once, of which each step trains on a slice of an order: a batch of the
user's own kind, some hundred bytes a step. Killed, it has the bits of rows that are written out."""

import signal

import pytest

from mortal_steps.policy.journal import find_entry
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.docs_examples import write_modules
from tests.support.extending import PAGE, STEPS, configure, train
from tests.support.project import write_project

ROWS = "An algorithm that needs no rollouts"
SLICES = '''
import os, pathlib, signal
from dataclasses import dataclass

from cross_entropy import CrossEntropy
from mortal.extend import Batch, BatchSource, StepBatch
from mortal_steps.schedule import problem_indices
from mortal_steps.types import BatchRef, FileRef, StageTiming

Row = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Slice(Batch):
    """Places [first, stop) of an order of prepared rows."""

    dataset: FileRef
    order: FileRef
    first: int
    stop: int

    def files(self):
        return [self.dataset, self.order]

    def content(self, store):
        files = [self.dataset.sha256, self.order.sha256]
        return {"prepared": files, "places": [self.first, self.stop]}

    def read(self, store, step, plan):
        rows = store.read_record(self.dataset, list[Row])
        order = store.read_record(self.order, list[int])
        return Rows(step, [rows[place] for place in order[self.first : self.stop]])

    def counts(self):
        return {"num_rows": self.stop - self.first}


@dataclass
class Rows:
    step: int
    rows: list[Row]


class Slices(BatchSource):
    roles = ()
    samples = False
    supplies = Slice

    def __init__(self, *, session, workers):
        self.session = session

    def begin(self, step, published):
        session, config = self.session, self.session.run.config
        found = [session.store.find_record(f"data/{name}.json", kind) for name, kind in PREPARED]
        if None not in found:
            self.files = [ref for ref, _ in found]
            return
        rows = [{**row.columns, "prompt": row.prompt} for row in session.problems]
        size = config.training.batch_size
        order = [
            row
            for step in range(session.run.info.num_steps)
            for row in problem_indices(
                len(rows), batch_size=size, step=step, seed=config.seed, shuffle=True
            )
        ]
        made = zip(PREPARED, (rows, order), strict=True)
        self.files = [
            session.store.write_record(f"data/{name}.json", content, kind)
            for (name, kind), content in made
        ]

    async def take(self, step):
        size = self.session.run.config.training.batch_size
        dataset, order = self.files
        batch = Slice(dataset=dataset, order=order, first=step * size, stop=(step + 1) * size)
        timing = StageTiming(stage="get_batch", step=step)
        drawn = BatchRef(step=step, file=order, num_problems=size, timing=timing)
        if step == 2 and not (mark := pathlib.Path("killed")).exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return StepBatch(drawn, batch)


PREPARED = (("prepared", list[Row]), ("order", list[int]))


class Sliced(CrossEntropy):
    trains_on = Slice

    def rows_of(self, batch):
        return batch.rows
'''


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on rows that each step writes out, and a killed one on slices of the same rows."""
    project = tmp_path_factory.mktemp("project")
    write_project(project)
    write_modules(PAGE, ROWS, project)
    (project / "slices.py").write_text(SLICES)
    (script,) = write_modules(PAGE, "The loop without Prefect", project)
    configure(project, "written", ROWS)
    configure(project, "sliced", ROWS, source="slices:Slices")
    settings = project / "sliced.toml"
    settings.write_text(
        settings.read_text().replace("cross_entropy.py:CrossEntropy", "slices:Sliced")
    )

    assert train(script, "written") == 0
    assert train(script, "sliced") == -signal.SIGKILL
    assert train(script, "sliced") == 0
    return {name: find_run(project / "runs", name) for name in ("written", "sliced")}


def test_slices_have_the_bits_of_rows_that_are_written_out(runs):
    written, sliced = runs["written"], runs["sliced"]
    assert sliced.manifest.attempts == 2
    assert sliced.manifest.final.weights_sha256 == written.manifest.final.weights_sha256
    losses = [row["loss"] for row in written.metrics()]
    assert [row["loss"] for row in sliced.metrics()] == losses
    assert [row["num_rows"] for row in sliced.metrics()] == [6] * STEPS


def test_a_step_takes_some_hundred_bytes_and_is_whole(runs, monkeypatch):
    run = runs["sliced"]
    monkeypatch.syspath_prepend(str(run.store.root.parent.parent))
    monkeypatch.chdir(run.store.root.parent.parent)
    for step in range(STEPS):
        batch = find_entry(run.store, step).request.batch
        assert (batch.first, batch.stop) == (6 * step, 6 * step + 6)
        assert run.store.path(f"steps/{step:06d}/journal.json").stat().st_size < 900
        assert not run.store.path(f"steps/{step:06d}/batch.json").exists()
    report = check_run(run.store.root.parent, "sliced")
    assert [file for file in report.files if file.damage] == []
    assert report.num_linked == STEPS
