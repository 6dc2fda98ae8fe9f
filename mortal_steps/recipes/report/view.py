"""Each stage of a recipe as people look at it: its record, with what its run directory tells."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import MortalError
from mortal_steps.recipes.file import merged
from mortal_steps.recipes.progress import in_words
from mortal_steps.recipes.record import Asker, RecipeRecord, StageRecord
from mortal_steps.recipes.references import references_in
from mortal_steps.recipes.table import TRAIN
from mortal_steps.report.curve_points import Point, curve_points, merits
from mortal_steps.report.status import RunStatus, status_of
from mortal_steps.report.summary import PAGE
from mortal_steps.report.units import counted, duration, number
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.costs import add_up
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.manifest import learns_without_rewards
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store.identity import IDENTITY_FILE

logger = logging.getLogger(__name__)

DIGITS = 10
"""Of a digest, that people are shown."""
WORDS = {
    "name_or_path": "model",
    "source": "rows",
    "eval_source": "held-out rows",
    "run": "run",
    "model": "model",
}
"""Last part of a key -> what is taken there, in a word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageView:
    """How a stage stands, and what its run tells."""

    name: str
    record: StageRecord
    algorithm: str | None
    """Of a stage that trains."""
    takes: Mapping[str, Sequence[str]]
    """What it takes from each of its parents, in a word or two."""
    status: RunStatus | None
    """Of a stage that is a run, once it has begun."""
    reached: str
    """What was reached, in a line; of one that runs, how far it is."""
    merit: str
    """What it is judged by, such as `held-out loss 4.102 -> 3.274`; empty where nobody knows."""
    training: Sequence[Point]
    """Steps and rewards, or losses, of the run."""
    held_out: Sequence[Point]
    judged_alike: bool
    """Whether both of them are rewards, or losses."""
    dollars: float | None
    """What the run has cost; None where it cost nothing."""
    page: str | None
    """The run's own report, relative to the folder of the recipe."""

    @property
    def kind(self) -> str:
        """Such as `train, sft`."""
        return f"{self.record.kind}, {self.algorithm}" if self.algorithm else self.record.kind

    @property
    def took(self) -> str:
        """How long this attempt at the recipe worked on it, in words."""
        began, ended = self.record.began_at, self.record.ended_at
        if began is not None and ended is not None:
            return duration(ended - began)
        return "made before" if self.record.standing == "complete" else ""

    @property
    def digest(self) -> str:
        return (self.record.sha256 or "")[:DIGITS]

    @property
    def begins_with(self) -> str:
        """Such as `model of sft, reward model of rm`."""
        return ", ".join(f"{' and '.join(what)} of {name}" for name, what in self.takes.items())


def look_at_stages(record: RecipeRecord, runs_dir: Path) -> list[StageView]:
    """Return how the stages stand, each after those that it begins with. What cannot be read of a
    run is warned of and left out."""
    return [_view(record, name, runs_dir) for name in record.stages]


def where_of(runs_dir: Path, name: str) -> str:
    """Return what commands are told behind the name of a recipe: its folder of runs, where `mortal`
    would not look by default."""
    return run_argument(runs_dir / name).removeprefix(name)


def how_to_go_on(record: RecipeRecord, where: str = "") -> str:
    """Return what a person does next; empty where there is nothing to do."""
    asking = [stage for stage in record.stages.values() if stage.standing == "asks"]
    resume = f"mortal resume {record.name}{where}"
    if asking and record.status != "running":
        return then(asking[0].headline, asking[0].asked_by, resume)
    if record.status in ("failed", "stopped", "interrupted", "waiting"):
        return f"`{resume}` goes on; what is complete is not made again"
    return ""


def then(how: str, asked_by: Asker, resume: str) -> str:
    """Return how a question is answered, and what goes on with the recipe then."""
    return how if asked_by == "flow run" else f"{how}; then `{resume}` goes on"


def stands(record: RecipeRecord) -> str:
    """Return how a recipe stands, such as `completed, 4 of 4 stages complete`."""
    complete = sum(stage.standing == "complete" for stage in record.stages.values())
    return f"{record.status}, {complete} of {counted(len(record.stages), 'stage')} complete"


def _view(record: RecipeRecord, name: str, runs_dir: Path) -> StageView:
    stage = record.stages[name]
    run = _run(stage, runs_dir)
    metrics = run.metrics() if run else []
    evaluations = run.logs.read(EVALUATIONS) if run else ()
    costs = add_up(run.store.root) if run else None
    status = status_of(run) if run else None
    reached = stage.headline
    if status is not None and stage.standing in ("running", "stopped", "interrupted"):
        reached = in_words(status)
    trained = "loss" if any(map(learns_without_rewards, metrics)) else "reward"
    scored = any("reward" in scores for scores in (stage.metrics, *evaluations))
    judged = "reward" if scored else trained
    page = run is not None and run.store.path(PAGE).exists()
    return StageView(
        name=name,
        record=stage,
        algorithm=_algorithm(record, name) if stage.kind == TRAIN else None,
        takes=_takes(record, name),
        status=status,
        reached=reached,
        merit=_merit(judged, merits(evaluations)),
        training=curve_points(metrics),
        held_out=curve_points(evaluations),
        judged_alike=judged == trained,
        dollars=costs.total if costs else None,
        page=f"../../{stage.job_id}/{PAGE}" if page else None,
    )


def _run(stage: StageRecord, runs_dir: Path) -> Run | None:
    if stage.job_id is None or not (runs_dir / stage.job_id / IDENTITY_FILE).exists():
        return None
    try:
        return find_run(runs_dir, stage.job_id)
    except MortalError as error:
        logger.warning("%s", error)
        return None


def _merit(judged: str, held_out: Sequence[Point]) -> str:
    if not held_out:
        return ""
    values = [number(value) for _, value in held_out]
    shown = values if len(values) == 1 else (values[0], values[-1])
    return f"held-out {judged} {' -> '.join(shown)}"


def _table(record: RecipeRecord, name: str) -> Mapping[str, object]:
    """Return a stage's table as it is written, with the recipe's defaults."""
    written = record.config.get("stages", {}).get(name, {})
    return merged(record.config.get("defaults", {}), written)


def _algorithm(record: RecipeRecord, name: str) -> str | None:
    table = _table(record, name).get("algorithm")
    return str(table.get("type", "grpo")) if isinstance(table, Mapping) else "grpo"


def _takes(record: RecipeRecord, name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {parent: [] for parent in record.stages[name].parents}
    for each in references_in(_table(record, name)):
        if each.stage in found and (what := _what(each.key)) not in found[each.stage]:
            found[each.stage].append(what)
    return found


def _what(key: str) -> str:
    if key.startswith(("rewards.", "evaluation.")):
        return "reward model"
    if key.startswith("algorithm.teacher"):
        return "teacher"
    last = key.rpartition(".")[2]
    return "held-out rows" if ".eval_sets." in key else WORDS.get(last, last)
