"""Stock TRL, the actor, and the actor killed: the same bits on this device?"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_check.checked import Checked, Options
from tests.support.parity.cases import Case, draw
from tests.support.parity.trial import attempt, context

SEED = 14


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield a check for each of some drawn configurations, every second one under autocast."""
    processes = context()
    for number in range(1 if options.tiny else options.count):
        if time.monotonic() > options.until:
            return
        case = _in_numbers(draw(SEED, number), autocast=number % 2 == 1)
        began = time.perf_counter()
        trial = attempt(case, folder / str(number), processes)
        autocast = " under bfloat16 autocast" if case.training["trl"]["bf16"] else ""
        adapter = ", LoRA" if case.training.get("use_lora") else ""
        yield Checked(
            part="training",
            name=f"{case.architecture}{adapter}, {case.model['dtype']}{autocast}, "
            f"{case.training['loss_type']}, {case.optimizer}",
            passed=trial.outcome == "equal",
            took_s=time.perf_counter() - began,
            measured=trial.found or f"{trial.num_updates} updates, {trial.num_kills} kills: equal",
        )


def _in_numbers(case: Case, *, autocast: bool) -> Case:
    """Return the case in float32, with or without autocast, whatever the device would choose."""
    trl = {**case.training["trl"], "bf16": autocast}
    return dataclasses.replace(
        case, model={"dtype": "float32"}, training={**case.training, "trl": trl}
    )
