"""`mortal train` from the command line to the last file."""

import json
import re
from collections import Counter

import httpx
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mortal_steps.runs.run import find_run
from tests.support.command import Mortal
from tests.support.project import write_project
from tests.support.task_runs import stages_of_step, stages_shown
from tests.support.undisturbed import assert_same, undisturbed

KEEP = "checkpoints.keep_last=3"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("trained")
    write_project(folder)
    mortal = Mortal(folder, server.api_url)
    settings = ("--set", KEEP, "--set", "logging.segment_steps=3")
    mortal.output = mortal("train", "tiny.toml", "--run-id", "one", *settings)
    mortal.task_runs = mortal.ended_runs_of_flow("one")
    return mortal


def test_a_run_leaves_what_it_promises(trained):
    shown = trained.show("one")
    assert shown["run_id"] == "one"
    assert shown["status"] == "completed"
    assert (shown["step"], shown["max_steps"]) == (5, 5)
    assert set(shown["eval"]) == {"matches", "reward"}
    assert len(shown["final_weights_sha256"]) == 64
    assert shown["timings"]["generate"]["calls"] == 5 * 4
    assert shown["timings"]["train_step"]["calls"] == 5
    assert {"calls", "total_s", "mean_s"} <= set(shown["timings"]["reward"])
    run_dir = trained.folder / "runs" / "one"
    metrics = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [1, 2, 3, 4, 5]
    assert [row["policy_version"] for row in metrics] == [0, 1, 2, 3, 4]
    assert all({"reward", "loss", "grad_norm", "learning_rate"} <= set(row) for row in metrics)
    assert (run_dir / "reward_curve.png").read_bytes().startswith(b"\x89PNG")
    assert shown["checkpoints"][-2:] == [4, 5]
    model = AutoModelForCausalLM.from_pretrained(shown["model_path"])
    tokenizer = AutoTokenizer.from_pretrained(shown["model_path"])
    assert model.generate(**tokenizer("abc=", return_tensors="pt"), max_new_tokens=2).shape[0] == 1
    assert find_run(trained.folder / "runs", "one").status() == "completed"

    best = json.loads(trained("samples", "runs/one", "--json", "-n", "1"))[0]
    assert (best["kind"], best["step"]) == ("best", 5) and best["prompt"].endswith("=")
    assert best["reward"] == best["rewards"]["matches"]

    listed = json.loads(trained("runs", "--json"))
    assert "one" in [run["run_id"] for run in listed]
    assert "run one is complete" in trained("resume", "one")


def test_the_server_knows_every_stage_of_every_step(trained):
    names = {run["name"] for run in trained.task_runs}
    assert {"warm_start", "start_workers/0", "save_final"} < names
    expected = Counter({("sync_weights", version): 1 for version in range(6)})
    expected += Counter({("evaluate", step): 1 for step in (0, 4, 5)})
    expected += Counter({("checkpoint", step): 1 for step in (2, 4, 5)})
    for step in range(5):
        expected += stages_of_step(step)
    shown = stages_shown(names)
    assert shown == expected + Counter({("start_workers", 0): 1})
    own = Counter(name.split("/")[0] for name in names if "/" in name)
    assert own["generate"] == 20 and own["train_step"] == 5
    assert {run["state_type"] for run in trained.task_runs} == {"COMPLETED"}


def test_the_page_of_a_run_shows_segments_and_theirs_the_stages(trained):
    with httpx.Client(base_url=trained.env["PREFECT_API_URL"], timeout=30) as client:
        wanted = {"flow_runs": {"tags": {"all_": ["run:one"]}}}
        runs = {run["name"]: run for run in client.post("/flow_runs/filter", json=wanted).json()}
        assert runs.keys() == {"grpo/one", "steps 0-2", "steps 3-4"}
        assert {run["state_name"] for run in runs.values()} == {"Completed"}
        assert re.fullmatch(
            r"step 5/5, reward 0\.\d+, held out: matches 0\.\d+",
            runs["grpo/one"]["state"]["message"],
        )
        graph = client.get(f"/flow_runs/{runs['grpo/one']['id']}/graph-v2").json()
        nodes = [node["label"] for _, node in graph["nodes"]]
        assert {"evaluate/4", "checkpoint/2", "save_final"} < set(nodes)
        assert sum("steps" in node for node in nodes) == 2
        of_segment = {"flow_runs": {"id": {"any_": [runs["steps 3-4"]["id"]]}}}
        stages = client.post("/task_runs/filter", json={**of_segment, "limit": 200}).json()
        bar = next(node for _, node in graph["nodes"] if "steps 3-4" in node["label"])
        (step_2,) = [run for run in trained.task_runs if run["name"] == "train_step/2"]
        assert bar["start_time"] > step_2["start_time"]
        assert bar["start_time"] < bar["end_time"]
        shown = stages_shown(run["name"] for run in stages)
        assert stages_of_step(3) + stages_of_step(4) <= shown
        sampled = {**of_segment, "task_runs": {"tags": {"all_": ["stage:generate"]}}}
        found = client.post("/task_runs/filter", json=sampled).json()
        assert {run["name"].split("/")[0] for run in found} == {"generate"} and len(found) == 8
        assert {tuple(run["tags"]) for run in found} == {("stage:generate", "worker:0")}


def test_a_run_has_one_report_with_its_picture(trained):
    with httpx.Client(base_url=trained.env["PREFECT_API_URL"], timeout=30) as client:
        wanted = {"flow_runs": {"tags": {"all_": ["run:one"]}}}
        artifacts = client.post("/artifacts/filter", json=wanted).json()
        assert [(one["type"], one["key"]) for one in artifacts] == [("markdown", "report-one")]
    report = (trained.folder / "runs" / "one" / "report.md").read_text()
    shown = artifacts[0]["data"]
    assert "(data:image/png;base64,iVBOR" in shown, "Prefect's page has no file beside it"
    assert re.sub(r"\(data:[^)]*\)", "(reward_curve.png)", shown) == report
    assert report.startswith("# `one`: completed, step 5 of 5\n")
    assert "| train_step | 5 |" in report
    assert "<h1><code>one</code>" in (trained.folder / "runs" / "one" / "report.html").read_text()


def test_the_output_tells_where_everything_is(trained):
    for part in ("where the time went", "train_step", "model ", "Prefect UI", "step 5/5"):
        assert part in trained.output


def test_its_bits_are_those_of_the_bare_loop(trained):
    assert_same(trained.folder, "one", undisturbed(trained.folder, [KEEP]))


def test_a_fork_that_needs_what_is_not_there_is_refused(trained):
    nowhere = ("--set", "rewards.functions=['nowhere.py:judge']")
    refused = trained("fork", "one", "--at-step", "2", "--run-id", "never", *nowhere, code=1)
    assert "nowhere.py" in refused and not (trained.folder / "runs" / "never").exists()
