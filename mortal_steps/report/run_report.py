"""A run for a person to read: one page of Markdown.

How it stands, the reward curve, evaluations, where the time went, completions, what it survived and
what to do with it.
"""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mortal_steps.report.dialogue import prompt_text
from mortal_steps.report.evaluations import EPISODES, score_text
from mortal_steps.report.held_out import Gain, gain_text
from mortal_steps.report.markdown import bar, code, fenced, table
from mortal_steps.report.quarantine import quarantine_in_words
from mortal_steps.report.reward_functions import WINDOW, FunctionRow, function_cells
from mortal_steps.report.samples import Sample
from mortal_steps.report.summary import RunSummary
from mortal_steps.report.timings import table_cells
from mortal_steps.report.units import counted, duration, money, number
from mortal_steps.runs.manifest import merit_of
from mortal_steps.runs.notices import Notice
from mortal_steps.runs.recipe_of import recipe_of
from mortal_steps.statistics.intervals import Interval

Row = Mapping[str, Any]

MOST_SCORES = 12
"""Lines in the table of evaluations; functions may log any number of metrics."""
SHARES = {
    "differing": "differ",
    "solved": "are all the best of the run",
    "unsolved": "are equal, and less",
    "masked": "are missing, but for one",
}
"""How the rewards of a sampled group stand, by the name of the metric."""


def report_markdown(
    run: RunSummary,
    *,
    metrics: Sequence[Row] = (),
    evaluations: Sequence[Row] = (),
    intervals: Mapping[int, Mapping[str, Interval]] = MappingProxyType({}),
    notices: Sequence[Notice] = (),
    samples: Sequence[Sample] = (),
    picture: str | None = None,
) -> str:
    """Return the report, with what models, datasets and functions say fenced. `metrics` and
    `evaluations` are the rows of those logs, and `intervals` those of the ones in
    `shown_evaluations`, by their step; `picture` names the file of the reward curve, once there
    is a step."""
    parts = [
        *_heading(run),
        *_rewards(run, picture),
        *_functions(run.functions),
        *_selection(metrics),
        *_evaluations(evaluations, intervals, run.eval_gain),
        *_timings(run),
        *_samples(samples),
        *_faults(run, notices),
        *_commands(run),
    ]
    return "\n\n".join(parts) + "\n"


def _heading(run: RunSummary) -> Iterator[str]:
    yield f"# {code(run.run_id)}: {run.status}, step {run.step} of {run.max_steps}"
    share = run.step / run.max_steps
    so_far = duration(run.updated_at - run.created_at)
    stands = f"{bar(share)}{'░' * (len(bar(1.0)) - len(bar(share)))} {100 * share:.0f} %"
    if run.status == "completed":
        stands += f" · completed {so_far} after it began"
    elif run.eta_s is not None:
        stands += f" · {duration(run.eta_s)} to go"
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    yield f"{stands} · written {at}"
    if run.waits_for:
        yield f"Continue with: {code(run.waits_for)}"
    if run.nothing_learned:
        yield f"**Warning: {run.nothing_learned}.**"
    if run.error:
        yield f"{'It failed' if run.status == 'failed' else 'It ended early'}:"
        yield fenced(run.error)
    about = []
    if run.parent:
        about.append(f"fork of {code(run.parent['run_id'])}, from step {run.parent['step']}")
    if run.base_model:
        name = f"built from {code('[model.new]')}" if run.builds_model else code(run.base_model)
        about.append(f"model {name}")
    if run.num_rows:
        about.append(f"{counted(run.num_rows, 'row')} trained on")
    elif run.num_tokens:
        about.append(f"{run.num_tokens:,} tokens sampled for training")
    if run.cost:
        about.append(f"${money(run.cost['total'])}, estimated")
    if about:
        yield " · ".join(about)


def _rewards(run: RunSummary, picture: str | None) -> Iterator[str]:
    if picture is None:
        yield "No step is done yet."
        return
    yield f"![{run.merit} curve]({picture})"
    trend = run.reward_trend or run.loss_trend
    if trend is not None:
        yield (
            f"Training {run.merit}: **{number(trend['first'])}** over the first "
            f"{counted(trend['steps'], 'step')}, "
            f"**{number(trend['last'])}** over the last {trend['steps']}."
        )


def _functions(rows: Sequence[FunctionRow]) -> Iterator[str]:
    if not rows:
        return
    cells = function_cells(rows)
    yield "## Reward functions"
    yield table(
        list(cells[0]),
        [[code(name), *numbers] for name, *numbers in (cell.values() for cell in cells)],
        "l" + "r" * (len(cells[0]) - 1),
    )
    yield (
        f"Mean and standard deviation of the scores over the last {WINDOW} steps; failures over "
        "all of them; latency: the mean time for a shard."
    )


def _selection(metrics: Sequence[Row]) -> Iterator[str]:
    """Yield what a selection has sampled lately, and what of it is trained on; nothing for a run
    that trains on all that it samples."""
    rows = [row for row in metrics[-WINDOW:] if "selection/rounds" in row]
    if not rows:
        return

    def mean(key: str) -> float:
        return sum(float(row[key]) for row in rows) / len(rows)

    yield "## Selection"
    sampled, rounds = mean("num_sampled_completions"), mean("selection/rounds")
    yield (
        f"A step sampled {sampled:,.0f} completions in {rounds:.1f} rounds and trained on "
        f"{mean('num_kept_groups'):.1f} groups: means of the last {counted(len(rows), 'step')}. "
        "The reward in training is that of the problems that were selected; held-out problems show "
        "what the model can do."
    )
    shares = {words: mean(f"selection/{name}") for name, words in SHARES.items()}
    yield table(
        ["rewards of a sampled group", "share", ""],
        [[words, f"{100 * share:.0f} %", bar(share)] for words, share in shares.items()],
        "lrl",
    )


def shown_evaluations(rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Return the evaluations that the report compares, by name: the first, the best, by its reward
    or its loss, and the last."""
    if not rows:
        return []
    last = rows[-1]
    merits = [(merit, row) for row in rows if (merit := merit_of(row)) is not None]
    best = max(merits, key=lambda each: each[0], default=(0.0, None))[1]
    columns = [("last", last)]
    if len(rows) > 1:
        columns = [("first", rows[0]), *([("best", best)] if best else []), ("last", last)]
    return columns


def _evaluations(
    rows: Sequence[Row], intervals: Mapping[int, Mapping[str, Interval]], gain: Gain | None
) -> Iterator[str]:
    columns = shown_evaluations(rows)
    if not columns:
        return
    known = dict.fromkeys(name for _, row in reversed(columns) for name in row)
    scores = [name for name in known if name not in ("step", "reward")]
    scores.sort(key=lambda name: name.startswith(EPISODES))  # last, how episodes went
    names = [*(["reward"] if "reward" in known else []), *scores]
    yield "## Held-out problems"
    yield table(
        ["score", *(f"{which}, step {row['step']}" for which, row in columns)],
        [
            [
                code(name),
                *(
                    score_text(row.get(name), intervals.get(row["step"], {}).get(name))
                    for _, row in columns
                ),
            ]
            for name in names[:MOST_SCORES]
        ],
        "l" + "r" * len(columns),
    )
    if any(intervals.values()):
        yield (
            "In brackets: the 95 % interval of the mean over problems. The score before it is the "
            "mean over completions, and another number where some of a problem's have no score."
        )
    if gain is not None:
        yield f"The last evaluation: {gain_text(gain)}."


def _timings(run: RunSummary) -> Iterator[str]:
    rows, cost = list(run.timings.values()), run.cost
    if not rows:
        return
    cells = []
    for row, texts in zip(rows, table_cells(rows), strict=True):
        price = "" if row.is_part or not cost else f"${money(cost['by_stage'].get(row.stage, 0.0))}"
        priced = {"cost": price} if cost else {}
        cell = code(row.stage) if row.is_part else row.stage
        cells.append({**texts, "stage": cell, **priced, "": bar(row.share)})
    yield "## Where the time went"
    yield table(
        list(cells[0]),
        [list(row.values()) for row in cells],
        "l" + "r" * (len(cells[0]) - 2) + "l",
    )


def _samples(samples: Sequence[Sample]) -> Iterator[str]:
    if not samples:
        return
    yield f"## Completions of step {samples[0].step}"
    for sample in samples:
        scores = ", ".join(f"{code(name)} {number(v)}" for name, v in sample.rewards.items())
        reward = f"reward {number(sample.reward)}" if sample.reward is not None else "no reward"
        yield f"### {sample.kind.capitalize()}: {reward}"
        yield f"Problem {code(sample.problem_id)} · {scores}"
        for why in sample.why:
            yield code(why)
        yield "Prompt"
        yield fenced(prompt_text(sample.prompt))
        yield "Completion"
        yield fenced(sample.text)


def _faults(run: RunSummary, notices: Sequence[Notice]) -> Iterator[str]:
    found = []
    failed_calls = sum(row.failed_calls for row in run.functions)
    num_masked = sum(row.masked for row in run.functions)
    if run.attempts > 1:
        found.append(f"started {run.attempts} times; each time it continued where it had stopped")
    if failed_calls:
        found.append(f"{failed_calls:,} failed calls of reward functions")
    if num_masked:
        masked = counted(num_masked, "completion")
        found.append(f"{masked} masked, as a reward function or an environment failed")
    if run.quarantined:
        found.append(code(quarantine_in_words(run.quarantined)))
    for notice in notices:
        if notice.level != "news":
            found.append(f"step {notice.step}, {notice.title}: {code(notice.text)}")
    for changed in run.changed_rewards:
        names = ", ".join(map(code, changed["changes"]))
        found.append(f"reward functions changed after step {changed['step']}: {names}")
    if found:
        yield "## Interruptions and failures"
        yield "\n".join(f"- {fact}" for fact in found)


def _commands(run: RunSummary) -> Iterator[str]:
    beside = f"--runs-dir {shlex.quote(str(Path(run.run_dir).parent))}"
    where = f"{shlex.quote(run.run_id)} {beside}"
    commands = [f"mortal show {where}", f"mortal samples {where}"]
    if run.status not in ("completed", "running"):
        resumed = recipe_of(Path(run.run_dir)) or run.run_id
        commands.append(f"mortal resume {shlex.quote(resumed)} {beside}")
    if run.status == "running":
        commands.append(f"mortal stop {where}")
    if earlier := [step for step in run.checkpoints if step < run.max_steps]:
        step = run.best_step if run.best_step in earlier else earlier[-1]
        commands.append(f"mortal fork {where} --at-step {step}")
    yield "## Commands for this run"
    yield fenced("\n".join(commands))
    if run.model_path:
        unchanged = " Its weights are those of the starting model." if run.is_unchanged else ""
        yield f"The trained model is in {code(run.model_path)}.{unchanged}"
