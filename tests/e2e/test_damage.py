"""The command on a damaged run: what is lost is sampled, scored and saved again, bit for bit."""

import json
import shutil

from tests.support.damage import flip_a_byte
from tests.support.undisturbed import undisturbed


def test_a_completed_run_that_lost_its_end_comes_by_it_again(mortal):
    before = undisturbed(mortal.folder, run_id="hurt").manifest
    root = mortal.folder / "runs" / "hurt"
    logs = {name: (root / name).read_bytes() for name in ("metrics.jsonl", "evaluations.jsonl")}
    assert "the chain of 5 steps is whole" in mortal("verify", "hurt")

    shutil.rmtree(root / "checkpoints" / "step-5")  # so that step 4 has to be replayed
    damaged = [root / "final/model.safetensors", root / "steps/000004/generations-1.parquet"]
    damaged += [root / "steps/000004/rewards-2.parquet", root / "steps/000004/batch.json"]
    for path in damaged:
        flip_a_byte(path)
    found = json.loads(mortal("verify", "hurt", "--json", code=1))["damaged"]
    assert {str(path.relative_to(mortal.folder)) for path in damaged} <= {f["path"] for f in found}

    output = mortal("resume", "hurt")
    assert "going back to step 4" in output
    after = mortal.show("hurt")
    assert after["status"] == "completed"
    assert after["final_weights_sha256"] == before.final.weights_sha256
    assert logs == {name: (root / name).read_bytes() for name in logs}
    assert "the chain of 5 steps is whole" in mortal("verify", "hurt")
