"""`mortal test-rollout`, `test-reward`, `list-checkpoints` and `clear-cache`."""

import json
import re

import pytest

from mortal_steps.types import Checkpoint, StageTiming
from tests.support.begun_runs import make_run
from tests.support.project import write_project


@pytest.fixture
def project(tmp_path, monkeypatch):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(project):
    return [json.loads(line) for line in (project / "train.jsonl").read_text().splitlines()]


def test_a_model_that_is_built_answers_prompts_of_the_dataset(mortal, project):
    command = ("test-rollout", "tiny.toml", "--max-tokens", 4, "--prompts", 3, "--completions", 2)
    code, output, errors = mortal(*command, "--json")
    assert code == 0, errors
    found = json.loads(output)
    prompts = [row["prompt"] for row in rows(project)[:3]]
    assert [each["prompt"] for each in found["completions"]] == [p for p in prompts for _ in "ab"]
    assert all(1 <= each["tokens"] <= 4 for each in found["completions"])
    assert found["tokens"] == sum(each["tokens"] for each in found["completions"])
    assert found["tokens_per_s"] == pytest.approx(found["tokens"] / found["sample_s"])
    assert not (project / "runs" / ".models").exists(), "what was built for it is gone"


def test_a_dry_run_checks_and_tells_and_makes_no_run(mortal, project):
    code, output, errors = mortal("train", "tiny.toml", "--dry-run", "--run-id", "tried")
    assert code == 0, errors
    assert "\ndata       60 rows: " in output and " to train on\n" in output
    assert "\nprompt     train-" in output and "as the model reads it: '" in output
    assert "\nreward     matches = " in output and "for the text 'a made-up completion'" in output
    assert "placement  actor on the CPU, " in output
    assert "(training.gradient_accumulation_steps = 1), prompts of up to " in output
    assert "memory     this machine, " in output and "a checkpoint's copy" in output
    assert re.search(r"^time +about [\d.]+ to [\d.]+ s a step", output, re.M)
    assert "sampling   transformers in float32" in output
    assert not [path for path in (project / "runs").iterdir() if path.name == "tried"]
    code, _, errors = mortal("train", "tiny.toml", "--dry-run", "--set", "training.trl.beta=2")
    assert code == 1 and "training.trl.beta" in errors


def test_what_is_sampled_on_modal_is_not_sampled_here(mortal, project):
    code, _, errors = mortal("test-rollout", "tiny.toml", "--backend", "modal", "--prompt", "ab")
    assert code == 1 and "modal_app::test_rollout_fn" in errors


def test_a_text_is_scored_as_an_answer_to_the_first_problem(mortal, project):
    answer = rows(project)[0]["answer"]
    command = ("test-reward", "tiny.toml", "--completion", answer, "--completion", "?" * 9)
    code, output, errors = mortal(*command, "--json")
    assert code == 0, errors
    found = json.loads(output)["completions"]
    assert [each["reward"] for each in found] == [1.0, 0.0]
    assert [each["place"] for each in found] == ["text 1", "text 2"]


def test_without_a_configuration_two_programs_are_scored(mortal, project):
    code, output, errors = mortal("test-reward", "--json")
    assert code == 0, errors
    assert [each["reward"] for each in json.loads(output)["completions"]] == [1.0, 0.0]


def test_the_checkpoints_of_one_run_or_all_are_listed(mortal, tmp_path):
    timing = StageTiming(stage="checkpoint", step=2)
    saved = tuple(
        Checkpoint(step=step, path=f"c/{step}", sha256="", state_id="", timing=timing)
        for step in (2, 4)
    )
    make_run(tmp_path, "one", checkpoints=saved, best_step=2)
    make_run(tmp_path, "two")
    code, output, _ = mortal("list-checkpoints", "--runs-dir", tmp_path)
    assert (code, output) == (0, "run  step  best\none  2     best\none  4\n")
    found = json.loads(mortal("list-checkpoints", tmp_path / "one", "--json")[1])
    assert [(each["step"], each["best"]) for each in found] == [(2, True), (4, False)]
    code, output, errors = mortal("list-checkpoints", "two", "--runs-dir", tmp_path)
    assert (code, output, errors) == (0, "", "no checkpoints\n")


def test_a_model_leaves_the_cache_when_somebody_says_yes(mortal, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    kept = tmp_path / "models--other--model" / "file"
    for folder in ("models--org--model/blobs", "models--org--model/snapshots/c", kept.parent):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("half")
    code, _, errors = mortal("clear-cache", "--model", "org/model")
    assert code == 1 and "no terminal to ask in" in errors and "models--org--model" in errors
    assert (tmp_path / "models--org--model").exists()
    code, output, _ = mortal("clear-cache", "--model", "org/model", "--yes")
    assert code == 0 and output == f"removed {tmp_path}/models--org--model\n"
    assert [path.name for path in tmp_path.iterdir()] == [kept.parent.name]
    assert mortal("clear-cache", "--model", "org/model")[1].startswith("the cache has nothing of")
