"""inputs.json: what a stage began with."""

import json

from mortal_steps.recipes.kinds.train import TrainStage
from mortal_steps.recipes.lineage.origin import find_origin, note_origin
from mortal_steps.recipes.stages import Input, Job
from mortal_steps.runs.run import find_run
from mortal_steps.store.files import digest_file
from tests.support.made_recipe import SFT, model_of

VALUES = {
    "model": {"name_or_path": "stage:sft"},
    "data": {"source": "demonstrations.jsonl"},
    "rewards": {"functions": ["rewards.py:long"]},
}


def stage_and_job(letters):
    sft = find_run(letters.runs_dir, SFT)
    taken = Input(key="model.name_or_path", stage="sft", made_by=SFT, output=model_of(sft))
    letters.runs_dir.parent.joinpath("rewards.py").write_text("def long(completions, **_): ...\n")
    stage = TrainStage("more", VALUES, "letters")
    job = Job(
        recipe="letters",
        stage="more",
        identity=stage.identity([taken]),
        inputs=(taken,),
        runs_dir=letters.runs_dir,
    )
    return stage, job


def test_a_stage_notes_its_inputs_its_data_and_its_code(letters):
    stage, job = stage_and_job(letters)
    note_origin(stage, "train", job)
    found = find_origin(letters.runs_dir / job.id)
    assert (found.recipe, found.stage, found.kind) == ("letters", "more", "train")
    assert found.identity == job.identity
    assert found.inputs == job.inputs
    sha256 = digest_file(letters.runs_dir.parent / "demonstrations.jsonl")
    assert found.contents == {"data.source": {"type": ".jsonl", "sha256": sha256}}
    assert len(found.code_sha256) == 1


def test_what_was_noted_first_stays(letters):
    stage, job = stage_and_job(letters)
    note_origin(stage, "train", job)
    path = letters.runs_dir / job.id / "inputs.json"
    before = path.read_bytes()
    note_origin(stage, "train", job)
    assert path.read_bytes() == before
    path.write_text("damaged")
    note_origin(stage, "train", job)
    assert json.loads(path.read_text().splitlines()[1])["identity"] == job.identity


def test_a_folder_with_that_record_alone_is_no_run(letters):
    stage, job = stage_and_job(letters)
    note_origin(stage, "train", job)
    assert stage.product(job) is None


def test_the_trackers_of_a_stage_have_the_recipe_as_their_group(letters):
    stage, job = stage_and_job(letters)
    assert stage.config(job).logging.group == "letters"
    own = TrainStage("more", {**VALUES, "logging": {"group": "mine"}}, "letters")
    assert own.config(job).logging.group == "mine"
    assert own.identity(job.inputs) == job.identity
