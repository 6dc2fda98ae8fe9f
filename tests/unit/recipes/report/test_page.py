"""The page of a recipe."""

import json
import re
import shutil
import time
import xml.etree.ElementTree as ET
from dataclasses import replace

from mortal_steps.recipes.report.page import RecipePage, page_html, write_page
from mortal_steps.recipes.report.picture import picture
from mortal_steps.recipes.report.view import how_to_go_on, look_at_stages
from mortal_steps.report.status import status_of
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.runs.run import find_run
from tests.support.made_recipe import GRPO, SFT


def test_the_page_shows_each_stage_in_a_picture_that_is_well_formed(letters):
    (letters.runs_dir / GRPO / "report.html").write_text("of the run")
    page = write_page(letters, letters.read()).read_text()
    svg = re.search("<svg.*</svg>", page, re.DOTALL)[0]
    words = " ".join("".join(ET.fromstring(svg).itertext()).split())
    assert all(name in words for name in ("sft", "best", "grpo", "complete", "model", "rows"))
    assert f'href="../../{GRPO}/report.html"' in svg
    assert f"../../{SFT}" not in page  # which has no report of its own
    assert "<b>this" not in page
    assert "<script" not in page


def test_what_a_stage_takes_is_told_in_words(letters):
    stages = {each.name: each for each in look_at_stages(letters.read(), letters.runs_dir)}
    assert stages["grpo"].begins_with == "model of sft, rows of best"
    assert stages["sft"].kind == "train, sft"
    assert stages["best"].kind == "sample"
    assert [value for _, value in stages["grpo"].training] == [0.1, 0.6]
    assert stages["grpo"].took == "30 s"


def test_losses_of_training_and_rewards_of_evaluations_have_a_scale_each(letters):
    """As where a teacher is learned from: a reward of 0.5 is no loss of 0.5."""
    folder = letters.runs_dir / GRPO
    losses = [{"step": step, "reward": None, "loss": 9.0 - step} for step in (1, 2)]
    lines = [json.dumps({**row, "num_unscored": 4}) for row in losses]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    scores = [json.dumps({"step": step, "reward": step / 4}) for step in (0, 1, 2)]
    (folder / "evaluations.jsonl").write_text("\n".join(scores) + "\n")
    stage = next(s for s in look_at_stages(letters.read(), letters.runs_dir) if s.name == "grpo")
    assert stage.merit == "held-out reward 0.000 -> 0.500"
    svg = ET.fromstring(
        f"<svg>{picture([replace(stage, record=replace(stage.record, parents=()))])}</svg>"
    )
    heights = [float(dot.get("cy")) for dot in svg.iter() if dot.tag.endswith("circle")]
    drawn = [re.findall(r",([\d.]+)", each.get("d")) for each in svg.iter() if each.get("d")]
    training = next(map(float, each) for each in drawn if len(each) == 2)
    assert (min(heights), max(heights)) == tuple(sorted(training))


def test_what_a_stage_is_judged_by_is_its_first_and_its_last_evaluation(letters):
    """Of more evaluations than a curve has points, which are means of several then."""
    scores = [json.dumps({"step": step, "reward": step / 200}) for step in range(201)]
    (letters.runs_dir / GRPO / "evaluations.jsonl").write_text("\n".join(scores) + "\n")
    stage = next(s for s in look_at_stages(letters.read(), letters.runs_dir) if s.name == "grpo")
    assert stage.merit == "held-out reward 0.000 -> 1.000"


def test_a_damaged_run_leaves_the_rest_of_the_page(letters, caplog):
    (letters.runs_dir / SFT / "run.json").write_text("{}")
    page = page_html(letters.read(), look_at_stages(letters.read(), letters.runs_dir))
    assert "grpo" in page
    assert "run.json is damaged" in caplog.text


def test_the_page_is_written_when_the_record_changes(letters):
    page, path, record = RecipePage(letters), letters.store.path("report.html"), letters.read()
    page.write(record)
    path.write_text("old")
    page.write(replace(record, updated_at=7.0))
    assert path.read_text() == "old"
    page.write(replace(record, status="stopped"))
    assert "stopped, 3 of 3 stages complete" in path.read_text()


def test_a_recipe_that_runs_tells_for_how_long(letters):
    record = replace(letters.read(), status="running", began_at=time.time() - 600, updated_at=0.0)
    assert "10 min in this attempt" in page_html(record, [])


def test_a_page_that_cannot_be_written_ends_nothing(letters, caplog):
    letters.store.path("report.html").mkdir()
    RecipePage(letters).write(letters.read())
    assert "the report is not written" in caplog.text


def test_how_to_go_on_is_told_where_there_is_something_to_do(letters):
    record = letters.read()
    assert how_to_go_on(record) == ""
    assert how_to_go_on(replace(record, status="failed")).startswith("`mortal resume letters`")
    asks = replace(record.stages["grpo"], standing="asks", headline="`mortal promote x` asks")
    waiting = replace(record, status="waiting", stages={**record.stages, "grpo": asks})
    assert how_to_go_on(waiting) == "`mortal promote x` asks; then `mortal resume letters` goes on"
    asks = replace(asks, headline="press Resume", asked_by="flow run")
    assert how_to_go_on(replace(waiting, stages={"grpo": asks})) == "press Resume"


def test_a_killed_stage_is_continued_with_its_recipe(letters):
    run = find_run(letters.runs_dir, GRPO)
    run.update(status="failed", final=None, step=1)
    assert status_of(run).waits_for == "mortal resume letters"
    assert resume_argument(run.store.root) == "letters"
    shutil.rmtree(letters.store.root)  # the run stays where the recipe is gone
    assert status_of(run).waits_for == f"mortal resume {GRPO}"
