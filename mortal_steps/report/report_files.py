"""The report of a run in its directory: reward_curve.png, report.md, report.html.

All of it is derived: it is written again at every beginning, in between, and at the end, whatever
became of it meanwhile. So one that cannot be written is a line in the log.
"""

from __future__ import annotations

import logging
import threading
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.errors import MortalError, StoreError
from mortal_steps.report.curve import Drawn, reward_curve
from mortal_steps.report.page import report_html
from mortal_steps.report.printable import printable
from mortal_steps.report.run_report import Rival, RunFacts, report_markdown
from mortal_steps.report.samples import Sample, last_samples
from mortal_steps.report.standing import waits_for
from mortal_steps.report.summary import PAGE, RunSummary, summarize
from mortal_steps.runs.logs import EVALUATIONS, read_lines
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.store.identity import CONFIG_FILE, IDENTITY_FILE, read_identity

logger = logging.getLogger(__name__)

PICTURE = "reward_curve.png"
MARKDOWN = "report.md"

_writing = threading.Lock()
"""One report is written at a time, so that the one at the end of a run is the last."""


def write_report(run: Run, eta_s: float | None = None) -> None:
    """Write everything known of the run to its report; `eta_s` are the seconds to its end at the
    present speed.

    Errors are logged and never raised: the run is more important than its report.
    """
    with _writing:
        try:
            _write(run, eta_s)
        except (StoreError, OSError) as error:
            logger.warning("the report is not written: %s", error)


def _write(run: Run, eta_s: float | None) -> None:
    metrics = run.metrics()
    evaluations = run.logs.read(EVALUATIONS)
    summary = summarize(run)
    picture = _picture(run, summary, metrics, evaluations)
    facts = RunFacts(
        summary=summary,
        rival=best_rival(run) if evaluations else None,
        waits_for=waits_for(run, summary.status),
        evaluations=evaluations,
        num_tokens=sum(row.get("num_sampled_tokens", 0) for row in metrics),
        failed_calls=_total(metrics, "failed_calls"),
        num_masked=_total(metrics, "masked"),
        notices=read_notices(run.store),
        samples=_samples(run),
        picture=picture,
        eta_s=eta_s,
        written_at=time.time(),
    )
    markdown = report_markdown(facts)
    page = report_html(printable(run.info.run_id), markdown)
    if picture is not None:
        write_atomically(run.store.path(PICTURE), picture)
    write_atomically(run.store.path(MARKDOWN), markdown.encode())
    write_atomically(run.store.path(PAGE), page.encode())


def _picture(
    run: Run,
    summary: RunSummary,
    metrics: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Mapping[str, Any]],
) -> bytes | None:
    if not metrics:
        return None
    parent = run.info.parent
    drawn = Drawn(
        title=run.info.run_id,
        training_temperature=run.config.rollout.temperature,
        held_out_temperature=run.config.evaluation.temperature,
        forked=(parent.run_id, parent.step) if parent else None,
        changed=[int(changed["step"]) for changed in summary.changed_rewards],
    )
    return reward_curve(drawn, metrics, evaluations)


def _samples(run: Run) -> list[Sample]:
    """One of each kind; none where the last step's records are damaged, which is warned of."""
    try:
        return last_samples(run, 1)
    except MortalError as error:
        logger.warning("the report shows no completions: %s", error)
        return []


def _total(metrics: Sequence[Mapping[str, Any]], count: str) -> int:
    """Of all reward functions, over all steps."""
    return sum(
        int(value)
        for row in metrics
        for key, value in row.items()
        if key.startswith("rewards/") and key.endswith(f"/{count}")
    )


def best_rival(run: Run) -> Rival | None:
    """The best other run in the same folder; None where no other one has been evaluated.

    Runs that cannot be read are left out; `mortal runs` warns of them.
    """
    own, found = _name(run.store.root), []
    for path in sorted(run.store.root.parent.glob(f"[!.]*/{IDENTITY_FILE}")):
        if path.parent != run.store.root:
            try:
                found.extend(_rival(run, path.parent, own))
            except (MortalError, OSError, ValueError) as error:
                logger.debug("%s is not compared with: %s", path.parent, error)
    return max(found, key=lambda rival: rival.scores["reward"], default=None)


def _rival(run: Run, root: Path, name: str) -> list[Rival]:
    """The run's best evaluation, if it was evaluated as `run` is."""
    lines = read_lines(root / EVALUATIONS, needs=("step",))
    rows = [row for row in lines if "reward" in row]  # else nothing was scored
    if not rows or _name(root) != name:
        return []
    info = read_identity(RunStore(root))
    if info is None or info.eval_problems.sha256 != run.info.eval_problems.sha256:
        return []
    best = max(rows, key=lambda row: row["reward"])
    scores = {key: value for key, value in best.items() if key != "step"}
    return [Rival(run_id=info.run_id, step=best["step"], scores=scores)]


def _name(root: Path) -> str:
    """`name` of a run's configuration."""
    path = root / CONFIG_FILE
    values = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return str(values.get("name", ""))
