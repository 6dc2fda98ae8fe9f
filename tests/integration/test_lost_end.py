"""A completed run is damaged: what is lost is sampled, scored and saved again, bit for bit."""

import json
import logging
import shutil

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from tests.support.damage import flip_a_byte
from tests.support.project import write_project
from tests.support.undisturbed import undisturbed

DAMAGED = (
    "final/model.safetensors",
    "steps/000004/generations-1.parquet",
    "steps/000004/rewards-2.parquet",
    "steps/000004/batch.json",
)


def verify(run, *options):
    return CliRunner().invoke(
        app, ["verify", run.info.run_id, "--runs-dir", str(run.store.root.parent), *options]
    )


@pytest.fixture
def hurt(tmp_path):
    """A run of five steps."""
    write_project(tmp_path)
    return undisturbed(tmp_path, run_id="hurt")


def test_a_completed_run_that_lost_its_end_comes_by_it_again(hurt, tmp_path, caplog):
    root = hurt.store.root
    logs = {name: (root / name).read_bytes() for name in ("metrics.jsonl", "evaluations.jsonl")}
    assert "the chain of 5 steps is whole" in verify(hurt).stdout

    shutil.rmtree(root / "checkpoints" / "step-5")  # so that step 4 has to be replayed
    for name in DAMAGED:
        flip_a_byte(root / name)
    found = verify(hurt, "--json")
    assert found.exit_code == 1
    damaged = {file["path"] for file in json.loads(found.stdout)["damaged"]}
    assert {str(root / name) for name in DAMAGED} <= damaged

    with caplog.at_level(logging.INFO):
        again = undisturbed(tmp_path, run_id="hurt")
    assert "going back to step 4" in caplog.text
    assert again.manifest.status == "completed"
    assert again.manifest.final.weights_sha256 == hurt.manifest.final.weights_sha256
    assert logs == {name: (root / name).read_bytes() for name in logs}
    assert "the chain of 5 steps is whole" in verify(hurt).stdout
