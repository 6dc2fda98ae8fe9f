"""What `mortal atropos --benchmark` prints at the end."""

import time

from mortal.terminal.bridge_times import summary
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import StageTiming
from tests.support.run_info import run_info


def test_memory_is_told_of_as_the_most_and_the_mean_of_all_steps(tmp_path):
    run = Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path))
    recorder = Recorder(run)
    for step, used in enumerate((2e9, 4e9)):
        memory = {"gpu": int(used), "gpu_reserved": int(2 * used), "resident": 500_000_000}
        recorder.timing(StageTiming(stage="train_step", step=step, busy_s=1.0, memory=memory))
    recorder.timing(StageTiming(stage="sync_weights", step=1, busy_s=0.5))
    lines = [" ".join(line.split()) for line in summary(run, "none", time.monotonic())]
    assert lines[lines.index("MEMORY:") + 1 : -1] == [
        "Peak GPU memory: 4.00 GB",
        "Avg GPU memory: 3.00 GB",
        "Peak GPU reserved: 8.00 GB",
        "Avg GPU reserved: 6.00 GB",
        "Peak resident set: 0.50 GB",
        "Avg resident set: 0.50 GB",
    ]
