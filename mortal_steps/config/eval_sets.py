"""`[evaluation.sets.NAME]`: held-out problems with settings of their own, or a harness, which asks
the policy itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny

from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.model import ModelConfig
from mortal_steps.config.rewards import Functions, RewardsConfig, Term
from mortal_steps.config.section import LocalPath, Section, of_its_kind
from mortal_steps.harnesses.table import EVAL_SETS, PROBLEMS
from mortal_steps.types import SamplingParams


class EvalSet(Section):
    """What an evaluation scores under a name of its own."""

    type: str = PROBLEMS
    """`problems`: the problems of `data.eval_sets.<name>`; `lm_eval`: tasks of
    lm-evaluation-harness; or a harness of your own, as `module:Class` or `path/file.py:Class`."""
    eval_steps: int | None = Field(None, ge=1)
    """Evaluate it every N steps alone, a multiple of `evaluation.eval_steps`, and before the first
    and after the last step. Default: in every evaluation."""

    def is_due(self, step: int, num_steps: int) -> bool:
        """Whether an evaluation after `step` of the run's steps contains it."""
        return step in (0, num_steps) or self.eval_steps is None or step % self.eval_steps == 0


class ProblemSet(EvalSet, extra="forbid"):
    """A set of `data.eval_sets` that is sampled and scored in a way of its own. What is left out is
    as `[evaluation]` and `[rewards]` have it."""

    type: Literal["problems"] = PROBLEMS
    num_problems: int | None = Field(None, ge=1)
    """Use its first N problems. Default: all."""
    functions: Functions = ()
    """Reward functions that score it, each with weight 1."""
    terms: tuple[Term, ...] = ()
    """The same in full, as `[[rewards.terms]]`."""
    num_generations: int | None = Field(None, ge=1)
    """Completions of each problem."""
    temperature: float | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens to sample per completion."""
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    min_p: float = Field(0.0, ge=0, le=1)
    stop: tuple[str, ...] | None = None

    def rewards(self, default: RewardsConfig) -> RewardsConfig:
        """Return what scores it; `default` scores evaluations otherwise."""
        if not (self.functions or self.terms):
            return default
        changes = {"functions": self.functions, "weights": None, "terms": self.terms}
        return RewardsConfig.model_validate({**dict(default), **changes})

    def pinned(self, commit_of: Callable[[ModelConfig], str | None]) -> Self:
        """Return the same with the commits of its reward models; see `RewardsConfig.pinned`."""
        its = self.rewards(RewardsConfig()).pinned(commit_of)
        changes = {"functions": its.functions} if self.functions else {"terms": its.terms}
        return self.model_copy(update=changes)

    def sampling(self, default: SamplingParams) -> SamplingParams:
        """Return how it is sampled; `default` is how evaluations are otherwise."""
        return SamplingParams(
            max_tokens=self.max_tokens or default.max_tokens,
            temperature=default.temperature if self.temperature is None else self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            stop=default.stop if self.stop is None else self.stop,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The policy that a harness evaluates. The endpoint speaks OpenAI's protocol, at
    `<base_url>/completions` and `<base_url>/chat/completions`.

    A request is sampled alone, so that its answer depends on nothing but the weights, the request
    and its seed. Ask many prompts in one request, as a list: they are sampled together. Without a
    `seed`, one follows from the run's and from the request.
    """

    base_url: str
    """Such as `http://127.0.0.1:8123/v1`; it takes any API key."""
    model: str
    """The model's name in requests."""
    model_folder: str
    """Folder or hub id of the model that the run began with, and of its tokenizer."""
    max_model_len: int
    """Longest prompt plus completion, in tokens."""
    max_tokens: int
    """Most tokens of a completion as the run samples it; a request may ask for others."""
    step: int
    """Train steps done; 0 at the gate before a model is put to use."""
    seed: int
    """The run's."""


Score = float | None
Answer = float | Mapping[str, Score | Mapping[str, Score]]
"""What a harness found: a number; or by problem its score, or its scores by metric. None: nobody
knows, and the problem is left out."""


class Harness(EvalSet, extra="allow"):
    """A benchmark that asks the policy itself. Its settings are its fields.

    An instance of this class itself stands for a user's own: its class is named by `type`, and is
    imported in the process that it works in.
    """

    type: str
    metric: str = ""
    """Which of its metrics counts as its reward, if it answers several for each problem."""
    timeout_s: Annotated[float, NO_NUMBERS] = Field(600.0, gt=0)
    """Seconds that it may take until its first request, from an answer to the next request, and
    from the last answer to its end."""
    files: Annotated[tuple[LocalPath, ...], NO_NUMBERS] = ()
    """Files that it reads, such as `["questions.json"]`: an edited one is noticed, as its code is.
    A folder stands for all that is in it."""

    @property
    def code(self) -> tuple[str, ...]:
        """Code of the user's that it is made of, as `module:name` or `path/file.py:name`."""
        return (self.type,) if ":" in self.type else ()

    @property
    def read_files(self) -> tuple[Path, ...]:
        """What is noticed when it is edited, beside the code."""
        return tuple(map(Path, self.files))

    def check(self) -> None:
        """Raise an error for settings with which it cannot work: called before a run begins."""

    def evaluate(self, policy: Policy) -> Answer:
        """Evaluate the policy. The same policy should get the same answer again: after a kill in
        the middle, this is called anew."""
        raise NotImplementedError(f"{type(self).__name__} has no `evaluate`")


def _of_its_kind(value: Any) -> Any:
    found = of_its_kind(value, EvalSet, EVAL_SETS)
    return Harness.model_validate(dict(found)) if isinstance(found, Mapping) else found


AnyEvalSet = Annotated[SerializeAsAny[EvalSet], BeforeValidator(_of_its_kind)]
