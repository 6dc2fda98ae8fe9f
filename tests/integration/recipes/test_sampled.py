"""Stages that sample with a model: killed in the middle, they end with the same bytes."""

import json
import signal
from pathlib import Path

import pytest

from mortal_steps.errors import DataError, ModelError, RewardError
from tests.support.bare_flow import bare_in, go_on, project_config
from tests.support.forked_commands import ForkedCommand
from tests.support.project import write_project
from tests.support.recipes import TINY, Nothing, job_of, make
from tests.support.recipes import tiny_stage as stage

MAKING = """
import json, os, signal, sys
from mortal_steps.recipes.table import STAGES
from tests.support.recipes import make

def say(line):
    if " completions are scored" in line:
        os.kill(os.getpid(), signal.SIGKILL)

make(STAGES.load(sys.argv[1])("own", json.loads(sys.argv[2]), "letters"), said=say)
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)


def made(kind, runs_dir="runs"):
    one = stage(kind)
    job = job_of(one, runs_dir)
    return make(one, job), job.folder / "out"


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["sample", "evaluate"])
def test_what_was_killed_goes_on_and_ends_with_the_same_bytes(kind):
    values = json.dumps(stage(kind).values)
    killed = ForkedCommand(["-c", MAKING, kind, values], cwd=Path.cwd())
    assert killed.wait() == -signal.SIGKILL
    folder = job_of(stage(kind)).folder
    assert list(folder.glob("work/*/shards/rewards-*")), "what was scored is committed"
    assert not (folder / "out").exists()
    product, out = made(kind)
    assert not (folder / "work").exists()
    whole, undisturbed = made(kind, "elsewhere")
    assert content(out) == content(undisturbed)
    assert {**product.metrics} == {**whole.metrics}
    CHECKS[kind](product, out)


def check_pairs(product, out):
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    problems = {json.loads(line)["prompt"] for line in Path("train.jsonl").read_text().splitlines()}
    assert rows and {each["prompt"] for each in rows} <= problems
    assert all(each["chosen"] != each["rejected"] for each in rows)
    assert {*rows[0]} == {"prompt", "answer", "chosen", "rejected"}
    found = product.metrics
    assert found["completions"] == found["problems"] * 3
    assert found["rows"] == len(rows)
    assert found["rows"] + found["without_a_row"] == found["problems"]
    assert found["best_reward"] > found["reward"]
    assert product.outputs[""].kind == "dataset"


def check_scores(product, out):
    found = json.loads((out / "evaluation.json").read_text())
    assert found["num_problems"] == 6
    reward = found["scores"]["reward"]
    assert reward["mean"] == product.metrics["reward"]
    assert reward["low"] <= reward["mean"] <= reward["high"]
    problems = [json.loads(line) for line in (out / "problems.jsonl").read_text().splitlines()]
    assert len(problems) == 6
    assert all(each["id"].startswith("eval-") for each in problems)
    assert all(each["scores"]["reward"] == sum(each["rewards"]) / 2 for each in problems)


CHECKS = {"sample": check_pairs, "evaluate": check_scores}


def test_all_that_can_be_is_checked_before_other_stages_exist():
    said = []
    waiting = stage(
        "sample",
        model={"name_or_path": "stage:sft", "max_model_len": 64},
        data={"source": "stage:rows"},
        rewards={
            "terms": [
                {"type": "function", "function": "rewards.py:matches"},
                {"type": "model", "model": "stage:rm"},
            ]
        },
    )
    new = {"model.name_or_path": {"new": TINY["model"]["new"]}}
    rows = {"data.source": [{"prompt": "ab", "answer": "ba"}]}
    waiting.check(Nothing(models=new, rows=rows), said.append)
    assert said[0] == "reading the dataset"
    rows = {"data.source": [{"prompt": "ab"}]}
    with pytest.raises(RewardError, match="answer"):
        waiting.check(Nothing(models=new, rows=rows), said.append)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"data": {"source": "trian.jsonl"}}, DataError, "did you mean"),
        ({"rewards": {"functions": ["rewards.py:match"]}}, RewardError, "did you mean matches"),
        ({"model": {"name_or_path": "./nowhere"}}, ModelError, "no such folder: nowhere"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(changes, error, message):
    with pytest.raises(error, match=message):
        stage("sample", **changes).check(Nothing(), lambda line: None)


def test_where_nothing_is_good_enough_the_remedy_is_told():
    with pytest.raises(DataError, match=r"none of 27 scored .* lower the threshold"):
        one = stage(
            "sample",
            data={**TINY["data"], "eval_samples": 3},
            sample={"completions": 3, "threshold": 2.0},
        )
        make(one)


SERVICE = """
import os

def varied(completions, **kwargs):
    if os.path.exists("away"):
        raise ConnectionError("nobody answers")
    return [sum(map(ord, text)) % 11 / 10 for text in completions]
"""


JUDGED = {"functions": ["service.py:varied"], "on_error": "mask", "retries": 0}


@pytest.mark.parametrize(
    ("kind", "message"),
    [("sample", "sample more"), ("evaluate", "none of 12 completions has a reward")],
)
def test_what_could_not_be_scored_is_scored_when_the_stage_is_made_again(kind, message):
    Path("service.py").write_text(SERVICE)
    Path("away").touch()
    failed = rf"(?s){message}.*could not be scored: .*nobody answers.*`mortal resume`"
    with pytest.raises(DataError, match=failed):
        make(stage(kind, rewards=JUDGED))
    Path("away").unlink()
    found = make(stage(kind, rewards=JUDGED)).metrics
    assert found["reward"] > 0
    assert "rewards/varied/masked" not in found


def test_a_kill_while_masked_scores_are_discarded_keeps_none_of_them(monkeypatch):
    Path("service.py").write_text(SERVICE)
    Path("away").touch()
    unlink, removed = Path.unlink, []

    def killed(path, **given):
        if path.name.startswith("rewards-"):
            if removed:
                raise KeyboardInterrupt
            removed.append(path)
        unlink(path, **given)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", killed)
        make(stage("sample", rewards=JUDGED))
    Path("away").unlink()
    found = make(stage("sample", rewards=JUDGED)).metrics
    assert found["scored"] == found["completions"]


def test_a_model_scores_what_a_run_notes_of_it(tmp_path):
    held_out = {"data.max_samples": 12, "data.eval_samples": 6}
    twice = {"evaluation.num_generations": 2, "evaluation.temperature": 1.0}
    with bare_in(tmp_path):
        run = go_on(project_config(tmp_path, **held_out, **twice, **{"training.max_steps": 1}))
    first, _ = run.store.path("evaluations.jsonl").read_text().splitlines()
    noted = json.loads(first)
    assert noted.pop("step") == 0
    one = stage("evaluate", rollout={**TINY["rollout"], "num_shards": 2})
    assert {**make(one).metrics} == noted
