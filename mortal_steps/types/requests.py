"""What the flow asks of rollout and reward workers."""

from dataclasses import dataclass

from mortal_steps.types.references import FileRef, GenerationRef, WeightsRef
from mortal_steps.types.rollouts import SamplingParams


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """Sample completions for the problems [start, stop) of a committed list of problems."""

    stage: str
    """`generate`, or `evaluate` for held-out problems."""
    step: int
    shard: int
    problems: FileRef
    """Record of `list[Problem]`."""
    start: int
    stop: int
    num_generations: int
    """Completions per problem."""
    sampling: SamplingParams
    weights: WeightsRef
    """The only version the worker may sample with."""
    output: str
    """Where the `GeneratedShard` goes, relative to the run directory. If a whole record of the same
    problems, seeds and version is there already, it is the answer and nothing is sampled."""
    round: int = 0
    """Round of the step: a problem that comes again in a later one has other seeds there."""
    eval_set: str = ""
    """The set of an evaluation with settings of its own that the problems are, if they are one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardRequest:
    """Score one shard of completions."""

    stage: str
    """`reward`, or `evaluate` for held-out problems."""
    generation: GenerationRef
    output: str
    """Where the `RewardedShard` goes, relative to the run directory; reused if whole."""
    eval_set: str = ""
    """As in `GenerateRequest`."""

    @property
    def step(self) -> int:
        return self.generation.step

    @property
    def shard(self) -> int:
        return self.generation.shard


@dataclass(frozen=True, kw_only=True, slots=True)
class HarnessRequest:
    """Let a harness evaluate the policy."""

    name: str
    """Name of its set."""
    step: int
    shard: int
    """Its number among what the evaluation asks for."""
    weights: WeightsRef
    """The only version that it may be answered with."""
    max_tokens: int
    """Most tokens of a completion, unless a request says otherwise."""
    output: str
    """Where the `HarnessAnswer` goes, relative to the run directory; reused if whole."""
    stage: str = "evaluate"
