"""Stock TRL beside a run: its own loop over the same rows, or training on what the run sampled."""

import os
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from mortal_steps.plan.loader import load_config
from mortal_steps.policy.algorithms.stepping.reproducible import prefer_reproducible_kernels

Answer = dict[str, Any]


def own(job: dict[str, Any]) -> Answer:
    """`GRPOTrainer` as a user runs it, with any kernels, which samples with transformers: seconds
    of a step."""
    from benchmarks.meter import StepMeter
    from benchmarks.vs_trl.stock import train

    os.chdir(Path(job["config"]).parent)
    config, meter = load_config(Path(job["config"]), job["settings"]), StepMeter()
    assert config.model.name_or_path
    train(config, config.model.name_or_path, Path(job["folder"]), meter)
    stamps = [stamp.wall_s for stamp in meter.stamps]
    return {"seconds": _median(stamps)}


def replayed(job: dict[str, Any]) -> Answer:
    """Stock TRL on the completions that a run recorded, with the kernels that the actor chooses:
    sha256 of the final weights, and how many tensors training has moved."""
    from safetensors.torch import load_file

    from benchmarks.meter import StepMeter
    from benchmarks.replayed_in_trl import train
    from benchmarks.vs_trl.stock import Stamps
    from mortal_steps.policy.on_disk.weights import weights_digest
    from mortal_steps.runs.run import find_run

    os.chdir(Path(job["config"]).parent)
    prefer_reproducible_kernels()
    run, meter = find_run(Path(job["config"]).parent / "runs", job["run_id"]), StepMeter()
    final, _ = train(run, Path(job["folder"]), [Stamps(meter)])
    began, now = (
        load_file(Path(folder, "model.safetensors"))
        for folder in (run.config.model.name_or_path, final)
    )
    moved = sum(not now[name].equal(before) for name, before in began.items())
    seconds = _median([stamp.wall_s for stamp in meter.stamps])
    return {"sha256": weights_digest(final), "moved": moved, "seconds": seconds}


def _median(stamps: list[float]) -> float:
    """Of the steps between stamps, but the first, in which kernels are loaded."""
    took = [end - begin for begin, end in pairwise(stamps)]
    return median(took[1:] or took)
