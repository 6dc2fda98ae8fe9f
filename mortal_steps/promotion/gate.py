"""The gate that a run's model passes on its way to production.

    bring in -> judge the candidate -> judge the incumbent -> compare | decide -> move the link

Each step is answered by what it has committed when it is asked for again, so that a gate may be
killed anywhere and passed again. Between comparing and deciding any time may go by: a decision is
refused if another model is in use by then.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.pool import Compute
from mortal_steps.errors import ConfigError, RewardError, RunNotFoundError
from mortal_steps.orchestration.forking.fork import is_judged_as_before
from mortal_steps.orchestration.trials.opening import judging_plan
from mortal_steps.plan.loader import override_config
from mortal_steps.policy.on_disk import weights
from mortal_steps.promotion.comparison import Comparison, Verdict
from mortal_steps.promotion.judged_folder import Judgement
from mortal_steps.promotion.judging import Judge
from mortal_steps.registry.registry import Decision, ModelVersion, Registry
from mortal_steps.report.held_out import REWARD, HeldOutScores, Scores, paired_rewards
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import Run, find_run
from mortal_steps.serving.whole import trained_files
from mortal_steps.statistics.paired import Paired
from mortal_steps.store.files import digest_file

OVERRIDABLE = ("evaluation", "rollout", "rewards", "compute")
"""Tables of the configuration that say how models are judged."""


def check_overrides(overrides: Sequence[str]) -> None:
    """Raise `ConfigError` for an override that does not say how models are judged."""
    for override in overrides:
        if override.strip().partition(".")[0] not in OVERRIDABLE:
            raise ConfigError(
                f"--set {override!r}: only {', '.join(OVERRIDABLE)} say how models are compared"
            )


class Gate:
    """The gate between one run and one name."""

    def __init__(
        self,
        run: Run,
        registry: Registry,
        overrides: Sequence[str] = (),
        local: Callable[..., Compute] = LocalCompute,
        *,
        request: str | None = None,
    ) -> None:
        """Judge with `overrides`, such as `evaluation.functions=["a.py:b"]`. A `request` that is
        made again keeps what was scored for it, also what failed, unless another one had that
        scored again meanwhile. Raises `ConfigError` where nothing can be judged so."""
        check_overrides(overrides)
        self._run = run
        self.registry = registry
        self._overrides = tuple(overrides)
        plan = judging_plan(override_config(run.config, overrides), run.info.num_steps)
        self._judge = Judge(registry.store, run, plan, local, request=request)

    def command(self) -> str:
        """Return the command that compares the models as this gate does, called in this folder."""
        models_dir, here = self.registry.store.root.parent.absolute(), Path.cwd()
        if models_dir.is_relative_to(here):
            models_dir = models_dir.relative_to(here)
        options = ["--name", self.registry.name, "--models-dir", str(models_dir)]
        options += [word for each in self._overrides for word in ("--set", each)]
        return f"mortal promote {run_argument(self._run.store.root)} {shlex.join(options)}"

    def bring_in(self) -> ModelVersion:
        """Link the candidate into the registry; raises as `trained_files`, `Registry.add`."""
        files = trained_files(self._run)
        named = sorted(name for name in files if name.endswith(".safetensors"))
        version = self.registry.add(
            run_id=self._run.info.run_id,
            run_uid=self._run.info.uid,
            runs=tuple(_ancestry(self._run)),
            # Folders list other digests than that.
            weights_sha256=weights.digest_of([digest_file(files[name][0]) for name in named]),
            files=files,
        )
        self.registry.follow()
        return version

    async def judge(self, version: ModelVersion) -> Judgement:
        return await self._judge.judge(version.path, version.sha256)

    async def compare(
        self,
        candidate: ModelVersion,
        judge: Callable[[ModelVersion], Awaitable[Judgement]] | None = None,
    ) -> Comparison:
        """Judge the candidate and the model in use; `judge` is called in place of `self.judge`."""
        judge = judge or self.judge
        judged, incumbent = await judge(candidate), self.registry.production()
        against: Mapping[str, float] | None = None
        other: Scores | None = None
        if incumbent is not None:
            against = (await judge(incumbent)).metrics
            other = self._judge.scores(incumbent.sha256)
        elif not self._overrides:
            against = self._before_training()
            other = HeldOutScores(self._run).of(0) if against else None
        return Comparison(
            candidate=candidate,
            metrics=judged.metrics,
            incumbent=incumbent,
            against=against,
            num_problems=judged.num_problems,
            paired=self._paired(candidate, other),
            decides=self._judge.decides,
        )

    def check_scored(self, comparison: Comparison) -> None:
        """Raise `RewardError` where no reward of a model is known because everything failed that
        scores it: a threshold would refuse a model that may be better. What failed is scored again
        when the same gate compares again."""
        judged = [(comparison.candidate, comparison.metrics)]
        if comparison.incumbent is not None:
            judged.append((comparison.incumbent, comparison.against or {}))
        unscored = [version for version, metrics in judged if REWARD not in metrics]
        found = [(version, self._judge.failures(version.sha256)) for version in unscored]
        failed = [(version, failures[0]) for version, failures in found if failures]
        for version, _ in failed:
            self._judge.forget(version.sha256)
        for version, first in failed:
            raise RewardError(
                f"{version.id} cannot be compared: no completion has a reward, because "
                f"{first.function} failed: {first.message}. Once that is mended, ask again: what "
                "failed is scored again"
            )

    def _paired(self, candidate: ModelVersion, other: Scores | None) -> Paired | None:
        if other is None:
            return None
        return paired_rewards(self._judge.scores(candidate.sha256), other, self._judge.seed)

    def decide(
        self, comparison: Comparison, verdict: Verdict, *, by: str, request: str | None = None
    ) -> Decision:
        """Record the verdict, and move production if it says so; see `Registry.decide`."""
        before = comparison.incumbent
        decision = Decision(
            action="promoted" if verdict.promote else "refused",
            version=comparison.candidate,
            before=before.id if before else None,
            by=by,
            why=verdict.why,
            request=request,
            metrics=comparison.metrics,
            against=comparison.against,
            paired=comparison.paired,
        )
        return self.registry.decide(decision)

    def _before_training(self) -> dict[str, float] | None:
        """Return what the run scored before its first step, or those scored that it is a fork of if
        they were judged alike."""
        rows = [row for row in self._run.logs.read(EVALUATIONS) if row["step"] == 0]
        if not rows or not is_judged_as_before(self._run):
            return None
        return {name: value for name, value in rows[0].items() if name != "step"}


def _ancestry(run: Run) -> list[str]:
    """Return the ids of the run and of those that it goes on from, as far as they are there."""
    found = [run.info.run_id]
    parent = run.info.parent
    while parent is not None and parent.run_id not in found:
        found.append(parent.run_id)
        try:
            parent = find_run(run.store.root.parent, parent.run_id).info.parent
        except RunNotFoundError:
            break
    return found
