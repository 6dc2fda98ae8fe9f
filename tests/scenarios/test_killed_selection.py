"""A run that selects what it samples, killed before and after every commit of its steps of several
rounds: plan, shard, score, journal, result, log, checkpoint."""

import logging
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from mortal_steps.orchestration.forking.fork import fork_run
from mortal_steps.plan.loader import load_config
from mortal_steps.runs.logs import SELECTIONS, RunLogs
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support import bare_flow
from tests.support.chaos.project import SELECTING, write_project

STEPS = 4
SETTINGS = [
    *(f"training.max_steps={STEPS}", "checkpoints.save_steps=2", "evaluation.eval_steps=2"),
    *("rollout.num_shards=2", "training.batch_size=4", "run_id=run"),
]
WANTED = re.compile(r"steps/000002/|checkpoints/step-2|weights/v0*3|^3 \w+\.jsonl|^final")
"""What the third step commits, and the checkpoint before it."""
SAMPLING = re.compile(r"sampling (\S+) with")


class Places:
    """Where a run is killed: at each of its commits, once before it and once after it. What has
    been is kept in a file, since each kill ends the process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "places"
        self._file.touch()

    def had(self) -> list[str]:
        return self._file.read_text().splitlines()

    def pass_by(self, moment: str, name: str) -> None:
        place = f"{moment} {name}"
        if WANTED.search(name) and place not in self.had():
            with self._file.open("a") as file:
                file.write(f"{place}\n")
            os.kill(os.getpid(), signal.SIGKILL)


def at_each_commit(patch, places: Places, root: Path) -> None:
    """Kill this process at the next commit at which it was not killed yet."""
    rename, append = Path.rename, RunLogs.append

    def deadly_rename(self, target):
        name = os.path.relpath(target, root)
        places.pass_by("before", name)
        done = rename(self, target)
        places.pass_by("after", name)
        return done

    def deadly_append(self, name, *rows):
        line = f"{rows[-1].get('step')} {name}" if rows else name
        places.pass_by("before", line)
        append(self, name, *rows)
        places.pass_by("after", line)

    patch.setattr(Path, "rename", deadly_rename)
    patch.setattr(RunLogs, "append", deadly_append)


def killed_at_each_commit(config, folder: Path, log: Path) -> list[str]:
    """Drive a run to its end through one kill after the other; returns where it was killed."""
    places = Places(folder)
    root = Path(config.runs_dir).absolute() / config.run_id

    def go_on():
        logging.basicConfig(filename=log, level=logging.INFO, force=True)
        with pytest.MonkeyPatch.context() as patch:
            at_each_commit(patch, places, root)
            bare_flow.go_on(config)
        os._exit(0)

    while True:
        child = os.fork()
        if not child:
            try:
                go_on()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return places.had()
        assert status == signal.SIGKILL, f"it ended by itself after {places.had()[-1:]}"


def config_of(folder: Path, kind: str, staleness: int, **others):
    folder.mkdir()
    write_project(folder)
    given = [*SETTINGS, *SELECTING[kind], f"rollout.staleness={staleness}"]
    return load_config(folder / "chaos.toml", given)


def check(killed, whole, places: list[str], log: Path) -> None:
    """The bits of the run that nothing happened to, and nothing sampled again but what a kill
    kept from being committed."""
    assert killed.logs.read(SELECTIONS) == whole.logs.read(SELECTIONS)
    assert killed.metrics() == whole.metrics()
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    found = check_run(killed.store.root.parent, killed.info.run_id).files
    assert [file for file in found if file.damage] == []
    sampled = Counter(SAMPLING.findall(log.read_text()))
    assert sampled == {name: 1 + (f"before {name}" in places) for name in sampled}


@pytest.mark.parametrize(
    ("kind", "staleness"),
    [("dynamic", 0), ("screen", 2), ("curriculum", 1)],
)
def test_killed_at_every_commit_of_a_step_it_ends_with_the_same_bits(tmp_path, kind, staleness):
    config = config_of(tmp_path / "project", kind, staleness)
    in_whole = config.model_copy(update={"runs_dir": "whole"})
    with bare_flow.bare_in(tmp_path / "project"):
        whole = bare_flow.go_on(in_whole)
        log = tmp_path / "log"
        places = killed_at_each_commit(config, tmp_path, log)
        rounds = [row["num_rounds"] for row in whole.logs.read(SELECTIONS)]
        assert (max(rounds) > 1) == (kind != "curriculum")
        names = {place.partition(" ")[2] for place in places}
        wanted = {"batch.json", "generations-1.parquet", "rewards-1.parquet", "journal.json"}
        wanted |= {f"batch-{number}.json" for number in range(1, rounds[2])}
        assert {f"steps/000002/{name}" for name in wanted} <= names
        assert {f"3 {SELECTIONS}", "3 metrics.jsonl"} <= names
        check(find_run(Path("runs"), "run"), whole, places, log)


def test_a_fork_killed_at_every_commit_ends_with_the_bits_of_its_parent(tmp_path):
    config = config_of(tmp_path / "project", "dynamic", 1)
    with bare_flow.bare_in(tmp_path / "project"):
        parent = bare_flow.go_on(config)
        fork = fork_run(parent, at_step=2, run_id="fork")
        log = tmp_path / "log"
        places = killed_at_each_commit(fork.config, tmp_path, log)
        assert len(places) >= 20
        check(find_run(Path("runs"), "fork"), parent, places, log)
