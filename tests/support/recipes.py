"""Jobs of recipes, and what stands in for stages that do not exist yet."""

import asyncio
import hashlib
import tomllib
from pathlib import Path

from mortal_steps.recipes.products import make_product
from mortal_steps.recipes.stages import Input, Job, Output, StandIns
from mortal_steps.recipes.table import STAGES
from mortal_steps.store.files import digest_file
from mortal_steps.store.folders import files_below
from tests.support.project import CONFIG

TINY = {
    **tomllib.loads(CONFIG),
    "data": {"source": "train.jsonl", "max_samples": 12, "eval_samples": 6},
    "evaluation": {"num_generations": 2, "temperature": 1.0},
}
OWN = {"sample": {"sample": {"completions": 3, "keep": "pairs"}}, "evaluate": {}}
"""Of stages that sample, in the project of `write_project`."""


class Nothing(StandIns):
    """Nothing of the other stages is there, but for these paths, models and rows, by key."""

    def __init__(self, paths=(), models=(), rows=()):
        self._paths, self._models, self._rows = dict(paths), dict(models), dict(rows)

    def path(self, reference):
        return self._paths.get(reference.key)

    def model(self, reference):
        return self._models.get(reference.key)

    def run(self, reference):
        return None

    def rows(self, reference):
        return self._rows.get(reference.key)


def job_of(stage, runs_dir="runs", **paths):
    """The job of a stage; `paths` are those of what it takes, by stage, below the runs."""
    inputs = tuple(
        Input(
            key=each.key,
            stage=each.stage,
            made_by=f"r-{each.stage}",
            output=Output(
                kind="folder",
                path=paths[each.stage],
                sha256=digest_of(Path(runs_dir) / paths[each.stage]),
            ),
        )
        for each in stage.references
    )
    return Job(
        recipe=stage.recipe,
        stage=stage.name,
        identity=stage.identity(inputs),
        inputs=inputs,
        runs_dir=Path(runs_dir),
    )


def digest_of(path):
    files = files_below(path) if path.is_dir() else []
    whole = [digest_file(path / name) for name in files] if files else [digest_file(path)]
    return hashlib.sha256(repr(whole).encode()).hexdigest()


def make(stage, job=None, said=None):
    """The product of a stage."""
    say = (lambda line: None) if said is None else said
    return asyncio.run(make_product(stage, job or job_of(stage), say))


def tiny_stage(kind, **changes):
    """A stage of the project of `write_project`."""
    return STAGES.load(kind)("own", {**TINY, **OWN[kind], **changes}, "letters")
