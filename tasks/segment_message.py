"""What the page of a segment says of its steps: their reward, their pace, and where the time went.

steps 10-19: reward 0.062, 0.5 s/step; train_step 41 %, generate 31 %, reward 12 %
"""

from mortal_steps.report.timings import STAGES_OF_A_STEP, stage_rows
from mortal_steps.report.units import number
from mortal_steps.runs.manifest import learns_without_rewards
from mortal_steps.runs.run import Run
from mortal_steps.scores import mean_of

MOST_STAGES = 3


def segment_name(first: int, last: int) -> str:
    """Return the name of a segment's flow run, and of its bar on the page of the run."""
    return f"step {first}" if first == last else f"steps {first}-{last}"


def segment_message(run: Run, first: int, last: int, took_s: float | None) -> str:
    """Describe the steps that are done of a segment, which took so many seconds in all (None:
    unknown). Steps are counted from 0, as in the names of stages."""
    rows = [row for row in run.metrics() if first < row["step"] <= last + 1]
    if not rows:
        return f"{segment_name(first, last)}: none is done"
    name = "loss" if learns_without_rewards(rows[-1]) else "reward"
    parts = [f"{name} {number(mean_of(row.get(name) for row in rows))}"]
    if took_s is not None:
        parts.append(f"{took_s / len(rows):.2g} s/step")
    done = first + len(rows) - 1
    timings = [
        row
        for row in run.timings()
        if first <= row["step"] - (row["stage"] not in STAGES_OF_A_STEP) <= last
    ]
    stages = [row for row in stage_rows(timings) if not row.is_part and not row.in_background]
    stages.sort(key=lambda row: -row.share)
    shares = [f"{row.stage} {100 * row.share:.0f} %" for row in stages[:MOST_STAGES]]
    where = f"; {', '.join(shares)}" if shares else ""
    return f"{segment_name(first, done)}: {', '.join(parts)}{where}"
