"""What each process of a run does with the dataset until the first step: one stage a process.

python -m benchmarks.dataset.stages STAGE CONFIG      # prints what it took, as JSON
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from mortal_steps.config.loader import load_config
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.orchestration.session import Session


def begin(config: Path) -> None:
    """Do what the command does: every check, in the processes for it, then the run directory."""
    open_run(load_config(config))


def first_batch(config: Path) -> None:
    """Open the run again and commit the problems of step 0, as the flow's process does."""
    run = open_run(load_config(config))
    asyncio.run(Session(run, None).get_batch(0))  # type: ignore[arg-type]


def probe(config: Path) -> None:
    """Read the first prompt, as the actor does for the canary."""
    from mortal_steps.policy.publishing import probe_tokens
    from mortal_steps.policy.starting_model.new_model import build_tokenizer  # imports torch

    run = open_run(load_config(config))
    assert run.config.model.new is not None
    probe_tokens(
        run.store, build_tokenizer(run.config.model.new), {}, run.config.model.max_model_len
    )


STAGES = {stage.__name__: stage for stage in (begin, first_batch, probe)}


def main() -> None:
    """Do the stage, tell what it took; its children's peak is that of the largest."""
    before = time.perf_counter()
    STAGES[sys.argv[1]](Path(sys.argv[2]))
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = {
        "wall_s": time.perf_counter() - before,
        "cpu_s": own.ru_utime + own.ru_stime,
        "peak_mb": own.ru_maxrss / 1024,
        "children_cpu_s": children.ru_utime + children.ru_stime,
        "children_peak_mb": children.ru_maxrss / 1024,
    }
    print(json.dumps(took))


if __name__ == "__main__":
    main()
