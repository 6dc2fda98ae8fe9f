"""A bit flipped in every kind of file: it is noticed, and the run ends with the same bits all the
same, or stops and names the file."""

import random
import shutil

import pytest
import torch

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy.weights import weights_digest
from mortal_steps.verify import check_run
from tests.bare_flow import Killed, go_on, project_config, strip_prefect

KILLED_AFTER = 3
"""Taken, not noted: the manifest stands at step 3, the newest checkpoint at step 2."""

REPLAYED, HISTORY, UNNOTED = "steps/000002", "steps/000000", f"steps/{KILLED_AFTER:06d}"
STEP_FILES = (
    *("batch.json", "journal.json", "result.json"),
    *("generations-0.json", "rewards-1.json"),
)
RECOVERED = (
    *("manifest.json", "base_model.json"),
    *("metrics.jsonl", "evaluations.jsonl", "timings.jsonl"),
    *(f"{folder}/{name}" for folder in (REPLAYED, HISTORY, UNNOTED) for name in STEP_FILES),
    *("evaluations/000002/generations-0.json", "evaluations/000002/rewards-1.json"),
    *(f"weights/v3/{name}" for name in ("model.safetensors", "probe.json", "manifest.json")),
    *(f"checkpoints/step-2/{name}" for name in ("model.safetensors", "optimizer.pt")),
    *("checkpoints/step-2/state.json", "checkpoints/step-2/manifest.json"),
    "checkpoints/best.json",
    *("../.models/*/model.safetensors", "../.models/*/manifest.json"),
)
LOST = ("run.json", "config.toml", "data/train.json", "data/eval.json")
FINAL = ("final/model.safetensors", "final/manifest.json", "final/tokenizer.json")


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        torch.set_num_threads(1)
        strip_prefect(patch)
        yield patch


@pytest.fixture(scope="module")
def project(tmp_path_factory, patch):
    folder = tmp_path_factory.mktemp("project")
    patch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def config(project):
    return project_config(project)


@pytest.fixture(scope="module")
def whole(project, config, patch):
    """Two runs that began alike: one that nothing happened to, one killed in the middle."""
    in_whole, in_killed = (
        config.model_copy(update={"runs_dir": str(project / name)}) for name in ("whole", "killed")
    )
    run = go_on(in_whole, patch)
    assert run.manifest.status == "completed"
    with pytest.raises(Killed):
        go_on(in_killed, patch, killed_after=KILLED_AFTER)
    return run


@pytest.fixture
def killed(whole, project, config, tmp_path):
    """A copy of the killed run, and the configuration that goes on with it."""
    return copy_of(project / "killed", tmp_path, config)


@pytest.fixture
def completed(whole, project, config, tmp_path):
    return copy_of(project / "whole", tmp_path, config)


def copy_of(runs_dir, tmp_path, config):
    shutil.copytree(runs_dir, tmp_path / "runs")
    return tmp_path / "runs" / "run", config.model_copy(update={"runs_dir": str(tmp_path / "runs")})


def flip_a_bit(root, pattern):
    """At a place that the name decides; returns the file."""
    (path,) = sorted(
        root.parent.glob(pattern[3:]) if pattern.startswith("../") else [root / pattern]
    )
    content = bytearray(path.read_bytes())
    position = random.Random(pattern).randrange(8 * len(content))
    content[position // 8] ^= 1 << position % 8
    path.write_bytes(content)
    return path


def damaged_files(root):
    """What `mortal verify` finds."""
    return {
        file.path.resolve(): file.outcome
        for file in check_run(root.parent, root.name).files()
        if file.damage
    }


def same_bits(root, whole):
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert (root / name).read_bytes() == whole.store.path(name).read_bytes()
    assert weights_digest(root / "final") == weights_digest(whole.store.path("final"))


def test_without_damage_nothing_is_found(killed, whole, patch):
    root, config = killed
    assert damaged_files(root) == {}
    go_on(config, patch)
    same_bits(root, whole)
    check = check_run(root.parent, root.name)
    assert sum(1 for file in check.files() if file.damage) == 0
    assert (check.num_steps, check.num_linked) == (6, 6)


@pytest.mark.parametrize("pattern", RECOVERED)
def test_the_run_recovers_to_the_same_bits(killed, whole, patch, pattern):
    root, config = killed
    path = flip_a_bit(root, pattern)
    assert set(damaged_files(root)) == {path.resolve()}
    go_on(config, patch)
    same_bits(root, whole)
    left = damaged_files(root)
    assert set(left.values()) <= {"passed over"} and set(left) <= {path.resolve()}


@pytest.mark.parametrize("pattern", LOST)
def test_what_is_nowhere_else_stops_the_run_and_is_named(killed, patch, pattern):
    root, config = killed
    path = flip_a_bit(root, pattern)
    assert damaged_files(root) == {path.resolve(): "cannot be recovered"}
    with pytest.raises(CorruptFileError, match=rf"{path} .*--run-id"):
        go_on(config, patch)


@pytest.mark.parametrize("pattern", FINAL)
def test_a_damaged_final_model_is_made_again(completed, whole, patch, pattern):
    root, config = completed
    before = {p.name: p.read_bytes() for p in (root / "final").iterdir()}
    path = flip_a_bit(root, pattern)
    assert damaged_files(root) == {path.resolve(): "will be made again"}
    go_on(config, patch)
    assert {p.name: p.read_bytes() for p in (root / "final").iterdir()} == before
    same_bits(root, whole)
    assert damaged_files(root) == {}


def test_a_lost_manifest_and_lost_logs_are_made_again(killed, whole, patch):
    root, config = killed
    for name in ("manifest.json", "metrics.jsonl", "evaluations.jsonl", "checkpoints/best.json"):
        (root / name).unlink()
    go_on(config, patch)
    same_bits(root, whole)
