"""A run in one record: what `mortal show` prints and the flow returns."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy.on_disk.weights import digest_of
from mortal_steps.policy.starting_model.base_model import RECORD_FILE, StartingModel
from mortal_steps.report.curve_points import Point, curve_points
from mortal_steps.report.evaluations import scores_text
from mortal_steps.report.held_out import Gain, HeldOutScores
from mortal_steps.report.idleness import EQUAL, FLAT
from mortal_steps.report.quarantine import Quarantined, find_quarantined
from mortal_steps.report.reward_functions import FunctionRow, function_rows
from mortal_steps.report.status import REWARD_WINDOW, RunStatus, status_of
from mortal_steps.report.timings import StageRow, own_timings, stage_rows
from mortal_steps.report.units import drawn
from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.rewards.source_history import find_history
from mortal_steps.runs.costs import add_up
from mortal_steps.runs.logs import EVALUATIONS, QUARANTINE
from mortal_steps.runs.manifest import learns_without_rewards
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import Run
from mortal_steps.scores import mean_of
from mortal_steps.statistics.intervals import Interval

logger = logging.getLogger(__name__)

PAGE = "report.html"
NEW_MODEL = "new"
"""Stands for a model that the run builds itself, as `[model.new]` says."""
NOTHING_LEARNED = "nothing was learned: no completion of any step has a reward"
ALL_EQUAL = "nothing to learn from: the rewards of each group were equal in every step"
FINISHED = "mortal.run.finished"
"""The notice of a run's end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary(RunStatus):
    """Everything that there is to know about a run, small enough to print."""

    parent: Mapping[str, Any] | None
    """Of a fork: `run_id` and `step` that it goes on from."""
    base_model: str
    """What it began with: a hub name, a folder, or `new` for one of its own."""
    attempts: int
    """Times that a process began to drive it."""
    reward_trend: Mapping[str, Any] | None
    """`first` and `last`: mean training reward at either end, over `steps` steps that do not
    overlap: 20, or half of a shorter run. None before two steps are done."""
    loss_trend: Mapping[str, Any] | None
    """The same of the training loss, where nothing is learned from rewards."""
    eval: Mapping[str, float]
    """Last evaluation: mean score per reward function and `reward`."""
    eval_step: int | None
    """Step of the last evaluation."""
    eval_intervals: Mapping[str, Interval]
    """95 % intervals of the scores of the last evaluation, by name, where its shards are here: of
    the mean over problems, while `eval` has that over completions."""
    eval_gain: Gain | None
    """How much better the reward of the last evaluation is than that of the first whose shards are
    here; None without such a one."""
    final_weights_sha256: str | None
    model_path: str | None
    ui_url: str | None
    run_dir: str
    report: str | None
    """Name of the page in `run_dir` that tells all this with pictures, if it was written."""
    fingerprint: str
    timings: Mapping[str, StageRow]
    """A line for each stage and each of its parts, by name."""
    functions: list[FunctionRow]
    """How each reward function does in training."""
    cost: Mapping[str, Any] | None
    """In dollars: total, by_kind and by_stage; None where it cost nothing."""
    judge: Mapping[str, Any] | None
    """What its judges took: answers, prompt_tokens, completion_tokens, dollars; None: none did."""
    quarantined: list[Quarantined]
    """Problems left out as a reward function or an environment failed, the most frequent first."""
    changed_rewards: list[Mapping[str, Any]]
    """Since which `step` other reward functions score than before, and their `changes`."""
    trackers: Sequence[str]
    """Those that it reports to."""
    curve: Mapping[str, Sequence[Point]]
    """`training` and `held_out`: steps done and mean reward, in 60 points at most; the loss where
    there is no reward because rows of a dataset are learned."""
    drawn: Mapping[str, str]
    """How completions of either are chosen: `sampled` or `greedy`; empty if unknown."""
    num_tokens: int = 0
    """Tokens sampled for training."""
    num_rows: int = 0
    """Rows of the dataset that it trained on as they are, over all steps."""
    warnings: Sequence[str] = ()
    """What it was warned of while it ran, oldest first."""
    all_equal: bool = False
    """Whether the rewards of each group were equal in every step."""
    ended: str = ""
    """Why the run ended before the last step that it was begun with; empty if it did not."""
    is_unchanged: bool = False
    """Whether the final model has the weights that the run began with."""
    first_eval: Mapping[str, float] = field(default_factory=dict)
    """The same as `eval` of the first evaluation, where rows are judged by their loss and there is
    a later one."""
    first_eval_step: int | None = None

    @property
    def builds_model(self) -> bool:
        """Return whether it began with a model of its own, made from `[model.new]`."""
        return self.base_model == NEW_MODEL

    @property
    def merit(self) -> str:
        """What training is judged by: `reward`, or `loss` where nothing is scored."""
        return "reward" if self.loss is None else "loss"

    @property
    def judged_alike(self) -> bool:
        """Whether evaluations are judged by what training is, so that one scale has both."""
        return self.merit == "reward" or "reward" not in self.eval

    @property
    def learned_nothing(self) -> bool:
        """Return whether steps are done, and no completion of any of them has a reward."""
        return self.step > 0 and not self.curve["training"] and not self.num_rows

    @property
    def nothing_learned(self) -> str:
        """Return why a run that is over has learned nothing; empty if it may have."""
        if self.learned_nothing:
            return NOTHING_LEARNED
        return ALL_EQUAL if self.all_equal and self.status == "completed" else ""

    @property
    def headline(self) -> str:
        """Such as `step 120/120, reward 0.660, held out: exact_match 0.985`."""
        parts = [f"step {self.step}/{self.max_steps}"]
        if self.reward is not None:
            parts.append(f"reward {self.reward:.3f}")
        elif self.loss is not None:
            parts.append(f"loss {self.loss:.3f}")
        judged = scores_text({n: score for n, score in self.eval.items() if n != "reward"})
        if judged:
            parts.append(f"held out: {judged}")
        if self.ended:
            parts.append(f"ended as {self.ended}")
        if self.nothing_learned:
            parts.append(self.nothing_learned)
        return ", ".join(parts)


def summarize(run: Run) -> RunSummary:
    """Read the run directory; changes nothing. What is damaged is warned of and left out."""
    manifest, store, parent = run.manifest, run.store, run.info.parent
    metrics, config = run.metrics(), _config(run)
    by_loss = any(map(learns_without_rewards, metrics))
    stages = stage_rows(own_timings(run.timings(), run.info.first_step))
    costs, spent = add_up(store.root), Spending(store.root).so_far()
    evaluations, held_out = run.logs.read(EVALUATIONS), HeldOutScores(run)
    last, all_equal = manifest.evaluation, all(row.get(EQUAL) == 1.0 for row in metrics)
    # Notices which the summary says in other words.
    said = (FINISHED, FLAT) if all_equal and manifest.status == "completed" else (FINISHED,)
    return RunSummary(
        **asdict(status_of(run)),
        parent={"run_id": parent.run_id, "step": parent.step} if parent else None,
        base_model=_base_model(config),
        attempts=manifest.attempts,
        reward_trend=None if by_loss else _trend([row["reward"] for row in metrics]),
        loss_trend=_trend([row.get("loss") for row in metrics]) if by_loss else None,
        eval=dict(last.metrics) if last else {},
        eval_step=last.step if last else None,
        eval_intervals=held_out.intervals(last.step) if last else {},
        eval_gain=held_out.gain([row["step"] for row in evaluations]),
        final_weights_sha256=manifest.final.weights_sha256 if manifest.final else None,
        model_path=str(store.path(manifest.final.path).absolute()) if manifest.final else None,
        ui_url=manifest.ui_url,
        run_dir=str(store.root.absolute()),
        report=PAGE if store.path(PAGE).exists() else None,
        fingerprint=run.info.fingerprint,
        timings={row.stage: row for row in stages},
        functions=function_rows(metrics, stages),
        cost=asdict(costs) if costs else None,
        judge=asdict(spent) if spent.answers else None,
        quarantined=find_quarantined(run.logs.read(QUARANTINE)),
        changed_rewards=_changed_rewards(run),
        trackers=config["logging"]["report_to"] if config else (),
        curve={
            "training": curve_points(metrics),
            "held_out": curve_points(evaluations),
        },
        drawn={} if any("num_prepared_rows" in row for row in metrics) else _drawn(config),
        num_tokens=sum(row.get("num_sampled_tokens", 0) for row in metrics),
        num_rows=sum(row.get("num_rows", row.get("num_prepared_rows", 0)) for row in metrics),
        warnings=[
            notice.text
            for notice in read_notices(store)
            if notice.level == "warning" and notice.event not in said
        ],
        ended=run.ended.why if run.ended else "",
        all_equal=bool(metrics) and all_equal,
        is_unchanged=_is_unchanged(run),
        **_first_evaluation(evaluations),
    )


def _first_evaluation(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields about the first evaluation; of scored problems, `eval_gain` tells more."""
    if len(evaluations) < 2 or "loss" not in evaluations[0] or "reward" in evaluations[0]:
        return {}
    first = dict(evaluations[0])
    return {"first_eval_step": first.pop("step"), "first_eval": first}


def _is_unchanged(run: Run) -> bool:
    """Return whether the final weights are the starting model's, where those are known: of a folder
    on this machine, or of a model that was made for the run."""
    final, files = run.manifest.final, run.info.model_files
    own = [files[name].sha256 for name in sorted(files) if name.endswith(".safetensors")]
    try:
        made = run.store.find_record(RECORD_FILE, StartingModel)
    except CorruptFileError:
        return False
    start = made[1].weights_sha256 if made else digest_of(own) if own else None
    return final is not None and final.weights_sha256 == start


def _config(run: Run) -> Mapping[str, Any] | None:
    """None, with a warning, where config.toml was altered."""
    try:
        return run.settings()
    except CorruptFileError as error:
        logger.warning("%s", error)
        return None


def _base_model(config: Mapping[str, Any] | None) -> str:
    if config is None:
        return ""
    return NEW_MODEL if "new" in config["model"] else config["model"]["name_or_path"]


def _drawn(config: Mapping[str, Any] | None) -> dict[str, str]:
    if config is None:
        return {}
    return {
        "training": drawn(config["rollout"]["temperature"]),
        "held_out": drawn(config["evaluation"]["temperature"]),
    }


def _trend(rewards: list[float | None]) -> dict[str, Any] | None:
    num_steps = min(REWARD_WINDOW, len(rewards) // 2)
    if not num_steps:
        return None
    first, last = mean_of(rewards[:num_steps]), mean_of(rewards[-num_steps:])
    return {"first": first, "last": last, "steps": num_steps}


def _changed_rewards(run: Run) -> list[Mapping[str, Any]]:
    try:
        history = find_history(run.store)
    except CorruptFileError as error:
        logger.warning("%s", error)
        return []
    return [
        {"step": now.step, "changes": changes}
        for before, now in pairwise(history)
        if (changes := before.sources.changes_to(now.sources))
    ]
