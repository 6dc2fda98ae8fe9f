"""A run's starting model is made before its flow asks for it."""

import time
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.orchestration.head_start import model_beside
from mortal_steps.policy.starting_model.base_model import first_model, make_base_model
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.types import Problem

PROBLEMS = [Problem(id=f"train-{i}", prompt="ab=", columns={"answer": "ba"}) for i in range(8)]
MADE = {
    "new": {"alphabet": "abcd=", "hidden_size": 32, "num_layers": 1, "intermediate_size": 32},
    "warm_start": {"steps": 2, "batch_size": 4},
}


def begun(folder: Path, **settings):
    config = RunConfig.model_validate(
        {
            "run_id": "begun",
            "runs_dir": str(folder),
            "data": {"source": "x"},
            "rewards": {"functions": ["m:f"]},
            "compute": {"local": {"actor": {"threads": 1}}},
            **settings,
        }
    )
    write_identity(RunStore(folder / "begun"), config, PROBLEMS, [])
    return find_run(folder, "begun")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_model_is_made_beside_the_block_with_the_same_bits(tmp_path):
    run = begun(tmp_path / "runs", model=MADE)
    before = files(run.store.root)
    path = Path(first_model(run.store, run.config, run.info.dataset_fingerprint))
    deadline = time.monotonic() + 120
    with model_beside(run):
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert files(run.store.root) == before, "the run is its driver's to write to"
    again = make_base_model(cache_dir=tmp_path / "again", config=run.config, problems=PROBLEMS)
    assert digest_file(path / "model.safetensors") == digest_file(Path(again, "model.safetensors"))


def test_nothing_is_begun_for_a_model_that_is_there(tmp_path):
    run = begun(tmp_path / "runs")
    with model_beside(run):
        pass
    assert not (tmp_path / "runs" / ".models").exists()
