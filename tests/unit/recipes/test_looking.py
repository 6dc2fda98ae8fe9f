"""Commands that look at recipes."""

import json
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from mortal.cli import app
from tests.support.made_recipe import GRPO, SFT


def told(*words):
    answer = CliRunner().invoke(app, [*words])
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_show_tells_the_stages_of_a_recipe(letters):
    found = told("show", "letters")
    assert "letters  completed, 3 of 3 stages complete" in found
    assert "train, grpo  complete  30 s" in found
    assert "model of sft, rows of best" in found
    assert "grpo reached <b>this</b>" in found
    stages = {
        each["name"]: each for each in json.loads(told("show", "letters", "--json"))["stages"]
    }
    assert stages["grpo"]["record"]["job_id"] == GRPO
    assert stages["grpo"]["status"]["step"] == 2


def test_show_tells_how_a_recipe_goes_on(letters):
    letters.write(replace(letters.read(), status="failed", error="stage grpo failed: no room"))
    found = told("show", "letters")
    assert "stage grpo failed: no room" in found
    assert "`mortal resume letters` goes on" in found
    assert json.loads(told("show", "letters", "--json"))["next"].startswith("`mortal resume")


def test_what_no_process_drives_is_interrupted_and_so_are_its_stages(letters):
    record = letters.read()
    begun = replace(record.stages["grpo"], standing="running")
    letters.write(replace(record, status="running", stages={**record.stages, "grpo": begun}))
    first, *_ = told("status").splitlines()
    assert first.startswith("recipe letters  interrupted")
    assert "best complete, grpo interrupted" in first
    assert "train, grpo  interrupted" in told("show", "letters")


def test_a_run_with_the_name_of_a_recipe_is_the_run(letters):
    (letters.runs_dir / SFT).rename(letters.runs_dir / "letters")
    assert "letters  completed, step 2 of 2" in told("show", "letters")


def test_runs_and_status_tell_the_stage_of_a_run(letters):
    assert "letters/grpo" in told("runs")
    stages = {each["run_id"]: each["stage"] for each in json.loads(told("runs", "--json"))}
    assert stages == {SFT: "sft", GRPO: "grpo"}
    assert {each["recipe"] for each in json.loads(told("status", "--json"))} == {"letters"}
    first, *_ = told("status").splitlines()
    assert first.startswith("recipe letters  completed")
    assert "sft complete, best complete, grpo complete" in first


def test_lineage_is_printed_and_is_json(letters):
    found = told("lineage", "letters")
    assert found.index(f"{GRPO}-0") < found.index(f"{GRPO}  run") < found.index(f"{SFT}  run")
    assert f"from         model.name_or_path = {SFT}, final  folder sha256 " in found
    assert json.loads(told("lineage", "letters", "--json"))[1]["stage"] == "grpo"


def test_lineage_tells_the_digest_of_a_folder_from_that_of_a_file(letters):
    """`mortal show` prints another one of the same model: that of its weights."""
    found = told("lineage", "letters")
    outputs = [
        out for each in json.loads(told("lineage", "letters", "--json")) for out in each["outputs"]
    ]
    assert {each["kind"] for each in outputs} >= {"model", "dataset"}
    for each in outputs:
        known_by = "sha256" if each["kind"] == "dataset" else "folder sha256"
        assert f"{Path(each['path']).name}  {known_by} {each['sha256']}" in found or (
            f"this folder  {known_by} {each['sha256']}" in found
        )


def test_a_damaged_recipe_leaves_the_list_of_runs(letters):
    letters.store.path("recipe.json").write_text("{}")
    assert GRPO in told("runs")
    assert GRPO in told("status")
