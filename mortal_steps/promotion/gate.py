"""The gate that a run's model passes on its way to production.

    bring in -> judge the candidate -> judge the incumbent -> compare | decide -> move the link

Each step is answered by what it has committed when it is asked for again, so that a gate may be
killed anywhere and passed again. Between comparing and deciding any time may go by: a decision is
refused if another model is in use by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mortal_steps.compute.base import Compute
from mortal_steps.compute.local import LocalCompute
from mortal_steps.config.loader import override_config
from mortal_steps.errors import ConfigError
from mortal_steps.promotion.candidate import candidate_files
from mortal_steps.promotion.comparison import Comparison, Verdict
from mortal_steps.promotion.judging import Judge, Judgement
from mortal_steps.registry.registry import Decision, Registry
from mortal_steps.registry.versions import ModelVersion
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, Problem

OVERRIDABLE = ("evaluation", "rollout", "rewards", "compute")
"""Tables of the configuration that say how models are judged."""
COMPARISONS = "comparisons"


class Gate:
    """The gate between one run and one name."""

    def __init__(
        self,
        run: Run,
        registry: Registry,
        overrides: Sequence[str] = (),
        local: Callable[..., Compute] = LocalCompute,
        problems: Sequence[Problem] | None = None,
    ) -> None:
        """`overrides` change how models are judged, such as `evaluation.functions=["a.py:b"]`;
        `problems` are judged by instead of the run's held-out problems.

        Raises `ConfigError` where nothing can be judged so.
        """
        for override in overrides:
            if override.strip().partition(".")[0] not in OVERRIDABLE:
                raise ConfigError(
                    f"--set {override!r}: only {', '.join(OVERRIDABLE)} say how models are compared"
                )
        self._run = run
        self.registry = registry
        self._overridden = bool(overrides)
        self._judge = Judge(registry, run, override_config(run.config, overrides), local, problems)

    def bring_in(self) -> ModelVersion:
        """Link the candidate into the registry; raises what `candidate_files` and `Registry.add`
        raise."""
        version = self.registry.add(candidate_files(self._run))
        self.registry.follow()
        return version

    async def compare(self, candidate: ModelVersion) -> Comparison:
        """Judge the candidate and the model in use."""
        judged, incumbent = await self.judge(candidate), self.registry.production()
        return self.compared(judged, await self.judge(incumbent) if incumbent else None)

    async def judge(self, version: ModelVersion) -> Judgement:
        """See `Judge.judge`."""
        return await self._judge.judge(version)

    def compared(self, candidate: Judgement, incumbent: Judgement | None) -> Comparison:
        """The comparison of the two judgements."""
        base = None if incumbent or self._overridden else self._before_training()
        return Comparison(candidate=candidate, incumbent=incumbent, base=base)

    def decide(
        self, comparison: Comparison, verdict: Verdict, *, by: str, request: str | None = None
    ) -> Decision:
        """Record the verdict, and move production if it says so; see `Registry.decide`."""
        before = comparison.before
        return self.registry.decide(
            "promoted" if verdict.promote else "refused",
            comparison.candidate.version,
            before=before.id if before else None,
            by=by,
            why=verdict.why,
            request=request,
            comparison=keep_comparison(self.registry.store, comparison),
        )

    def _before_training(self) -> dict[str, float] | None:
        rows = [row for row in self._run.logs.read(EVALUATIONS) if row["step"] == 0]
        if not rows:
            return None
        return {name: value for name, value in rows[0].items() if name != "step"}


def keep_comparison(store: RunStore, comparison: Comparison) -> FileRef:
    """Commit a comparison, under a name that follows from the two models."""
    before = comparison.before.id if comparison.before else "nothing"
    place = f"{COMPARISONS}/{comparison.candidate.version.id}-against-{before}.json"
    return store.write_record(place, comparison, Comparison)
