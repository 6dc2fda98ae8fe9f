"""The kind of a stage in docs/extending.md, as it stands there."""

import asyncio
import hashlib
import json

from mortal_steps.recipes.file import parse_recipe
from mortal_steps.recipes.products import make_product, read_product
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.stages import Input, Job, Output
from tests.support.docs_examples import write_modules

ROWS = [{"prompt": "a", "completion": "b" * length} for length in (5, 1, 3)]


def recipe(number):
    short = {"type": "shortest.py:Shortest", "source": "stage:best", "number": number}
    best = {"type": "shortest.py:Shortest", "source": "rows.jsonl", "number": 3}
    return Recipe(parse_recipe({"name": "own", "stages": {"best": best, "short": short}}))


def test_a_kind_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_modules("extending.md", "A kind of stage", tmp_path)
    (tmp_path / "runs").mkdir()
    rows = tmp_path / "runs" / "rows.jsonl"
    rows.write_text("\n".join(map(json.dumps, ROWS)))
    digest = hashlib.sha256(rows.read_bytes()).hexdigest()
    output = Output(kind="dataset", path="rows.jsonl", sha256=digest)
    given = (Input(key="source", stage="best", made_by="own-best-1", output=output),)
    stage = recipe(2).stages["short"]
    identity = stage.identity(given)
    job = Job(
        recipe="own", stage="short", identity=identity, inputs=given, runs_dir=tmp_path / "runs"
    )
    made = asyncio.run(make_product(stage, job, print))
    kept = (tmp_path / "runs" / made.outputs[""].path).read_text().splitlines()
    assert [len(json.loads(row)["completion"]) for row in kept] == [1, 3]
    assert made.metrics == {"rows": 2, "longest": 3} and read_product(job) == made
    assert recipe(3).stages["short"].identity(given) != identity
    with (tmp_path / "shortest.py").open("a") as code:
        code.write("# edited\n")
    assert recipe(2).stages["short"].identity(given) != identity
    kept_file = tmp_path / "runs" / made.outputs[""].path
    kept_file.chmod(0o644)
    kept_file.write_text("other\n")
    assert read_product(job) is None
