"""Run directories that hold models, of which no trainer knows."""

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import FinalModel
from tests.support.run_info import run_info


def commit(run, path, *, adapter=False):
    with run.store.committing_folder(path) as folder:
        if adapter:
            (folder / "adapter_config.json").write_text("{}")
        (folder / "model.safetensors").write_text(path)
    return run.store.folder_digest(path)


def begun(folder, *, lora=False):
    config = RunConfig(training={"use_lora": lora})
    return Run(RunStore(folder / "r"), config, run_info(folder))


def ended(run, merged=False, adapter=False):
    final = FinalModel(
        path="final",
        sha256=commit(run, "final", adapter=adapter),
        weights_sha256="0" * 64,
        merged_path="final-merged" if merged else None,
        merged_sha256=commit(run, "final-merged") if merged else None,
    )
    run.update(status="completed", step=9, final=final)
