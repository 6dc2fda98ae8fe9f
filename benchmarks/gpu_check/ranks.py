"""Stock TRL, the actor, and the actor killed, each on several ranks: the same bits?"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.gpu_check.checked import Checked, Options
from tests.support.parity.cases import Case, draw_on_ranks
from tests.support.parity.trial import attempt, context

SEED, COUNT = 14, 8


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield a check for each of some drawn configurations, on as many ranks as there are GPUs or on
    two of a CPU: by DDP, then by FSDP2."""
    ranks = torch.cuda.device_count() if options.is_gpu else 2
    if ranks < 2:
        one = "this machine has one GPU, and each rank needs its own"
        yield Checked(part="ranks", name="left out", passed=True, took_s=0.0, measured=one)
        return
    numbers = range(2 if options.tiny else COUNT)
    cases = [
        _in_numbers(draw_on_ranks(SEED, number, ranks), autocast=number % 4 > 1)
        for number in numbers
    ]
    yield from _checked(cases, folder, options)


def _checked(cases: Sequence[Case], folder: Path, options: Options) -> Iterator[Checked]:
    processes = context()
    for case in cases:
        if time.monotonic() > options.until:
            return
        began = time.perf_counter()
        trial = attempt(case, folder / str(case.number), processes)
        autocast = " under bfloat16 autocast" if case.training["trl"]["bf16"] else ""
        adapter = ", LoRA" if case.training.get("use_lora") else ""
        dealt_out = ", dealt out" if case.training.get("sharding") else ""
        yield Checked(
            part="ranks",
            name=f"{case.architecture}{adapter}, {case.model['dtype']}{autocast}{dealt_out}, "
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
