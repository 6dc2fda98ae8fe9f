"""A finished recipe on disk, written by hand: sft -> best (a product) -> grpo -> a model in use.

demonstrations.jsonl -> sft -> best -> rows.jsonl -> grpo -> models/letters
                         \\--------- model ----------/
"""

import time
from dataclasses import replace
from pathlib import Path

from mortal_steps.plan.loader import parse_config
from mortal_steps.recipes.lineage.origin import Origin
from mortal_steps.recipes.products import RECORD as PRODUCT
from mortal_steps.recipes.record import RecipeFolder, RecipeRecord, StageRecord
from mortal_steps.recipes.stages import Input, Output, Product
from mortal_steps.registry.registry import Registry
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.recipe_of import INPUTS
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.types import FinalModel, Problem
from mortal_steps.types.identity import Parent, RunInfo
from tests.support.registry import decide

SFT, BEST, GRPO = ("letters-sft-aaaaaaaaaa", "letters-best-bbbbbbbbbb", "letters-grpo-cccccccccc")
ROWS = f".recipes/letters/best-{BEST[-10:]}/out/rows.jsonl"
DAY_S = 86400.0


def made_run(
    runs_dir: Path, run_id: str, *, days: float = 0.0, parent: Run | None = None, **settings
) -> Run:
    """Write a completed run of two steps, with a final model of a few bytes, so many days old."""
    store = RunStore(runs_dir / run_id)
    origin = parent and Parent(
        run_id=parent.info.run_id,
        uid=parent.info.uid,
        step=1,
        state_id="s",
        history_id="s",
        fingerprint="f",
    )
    config = parse_config({"run_id": run_id, "runs_dir": str(runs_dir), **settings})
    info = write_identity(store, config, [Problem(id="p", prompt="a")], [], origin)
    store.write_record(
        "run.json", replace(info, created_at=info.created_at - days * DAY_S, num_steps=2), RunInfo
    )
    with store.committing_folder("final") as folder:
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_text(f"weights of {run_id}")
    rows = ['{"step": 1, "reward": 0.1}', '{"step": 2, "reward": 0.6}']
    store.path("metrics.jsonl").write_text("\n".join(rows) + "\n")
    final = FinalModel(
        path="final",
        sha256=store.folder_digest("final"),
        weights_sha256="0" * 64,
        merged_path=None,
        merged_sha256=None,
    )
    manifest = RunManifest(
        status="completed", step=2, final=final, updated_at=time.time() - days * DAY_S
    )
    store.write_record(MANIFEST_FILE, manifest, RunManifest)
    return find_run(runs_dir, run_id)


def model_of(run: Run) -> Output:
    assert run.manifest.final is not None
    return Output(kind="model", path=f"{run.info.run_id}/final", sha256=run.manifest.final.sha256)


def origin_of(stage: str, kind: str, *inputs: Input, **more) -> Origin:
    """Return what a stage began with."""
    return Origin(
        recipe="letters", stage=stage, kind=kind, identity="a" * 64, inputs=inputs, **more
    )


def made_recipe(project: Path, *, days: float = 0.0) -> RecipeFolder:
    """Write the recipe into `project/runs` and `project/models`; the current folder has to be
    `project`."""
    runs_dir = project / "runs"
    (project / "demonstrations.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    sft = made_run(runs_dir, SFT, days=days, model={"new": {}}, data={"source": DATA})
    known = {"data.source": {"type": ".jsonl", "sha256": digest_file(project / DATA)}}
    sft.store.write_record(INPUTS, origin_of("sft", "train", contents=known), Origin)
    took = Input(key="model.name_or_path", stage="sft", made_by=SFT, output=model_of(sft))
    rows = _product(runs_dir, took)
    settings = {
        "model": {"name_or_path": f"runs/{SFT}/final"},
        "data": {"source": f"runs/{ROWS}"},
    }
    grpo = made_run(runs_dir, GRPO, days=days, **settings)
    given = Input(key="data.source", stage="best", made_by=BEST, output=rows)
    grpo.store.write_record(INPUTS, origin_of("grpo", "train", took, given), Origin)
    registry = Registry(project / "models", "letters")
    files = {
        name: (grpo.store.path("final") / name, digest)
        for name, digest in grpo.store.folder_files("final").items()
    }
    version = registry.add(GRPO, grpo.info.uid, (GRPO,), "0" * 64, files)
    decide(registry, "promoted", version)
    folder = RecipeFolder(runs_dir, "letters")
    folder.write(_record(model_of(sft), rows, model_of(grpo)))
    return folder


DATA = "demonstrations.jsonl"


def _product(runs_dir: Path, took: Input) -> Output:
    store = RunStore((runs_dir / ROWS).parents[1])
    with store.committing_folder("out") as out:
        (out / "rows.jsonl").write_text('{"prompt": "a", "completion": "c"}\n')
    rows = Output(kind="dataset", path=ROWS, sha256=digest_file(runs_dir / ROWS))
    product = Product(
        recipe="letters", stage="best", job_id=BEST, outputs={"": rows}, inputs=(took,)
    )
    store.write_record(PRODUCT, product, Product)
    store.write_record(INPUTS, origin_of("best", "sample", took), Origin)
    return rows


def _record(sft: Output, rows: Output, grpo: Output) -> RecipeRecord:
    stages = {
        "sft": {"algorithm": {"type": "sft"}, "model": {"new": {}}},
        "best": {"type": "sample", "model": {"name_or_path": "stage:sft"}},
        "grpo": {"model": {"name_or_path": "stage:sft"}, "data": {"source": "stage:best"}},
    }
    parents = {"sft": (), "best": ("sft",), "grpo": ("sft", "best")}
    jobs = {"sft": (SFT, sft), "best": (BEST, rows), "grpo": (GRPO, grpo)}
    return RecipeRecord(
        name="letters",
        uid="0" * 32,
        config={"name": "letters", "stages": stages},
        working_dir=".",
        status="completed",
        stages={
            name: StageRecord(
                kind=str(table.get("type", "train")),
                parents=parents[name],
                standing="complete",
                job_id=jobs[name][0],
                headline=f"{name} reached <b>this</b>",
                sha256=jobs[name][1].sha256,
                began_at=0.0,
                ended_at=30.0,
            )
            for name, table in stages.items()
        },
    )
