"""`[rewards]`: how completions are scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from mortal_steps.config.field_metadata import NO_NUMBERS, Decides
from mortal_steps.config.model import ModelConfig
from mortal_steps.config.section import Section, of_its_kind
from mortal_steps.rewards.table import KINDS


class RewardTerm(Section, extra="allow"):
    """An entry of `[[rewards.terms]]`: one kind of reward, with its settings as fields.

    A kind is a subclass with a `load`. What is a `RewardTerm` itself is one of a user's own: its
    class is `type`, and is imported in the process that scores.
    """

    type: str = "function"
    """A kind that comes with MORTAL, or `module:Class` or `path/file.py:Class` of your own."""
    weight: float = 1.0
    """Weight of its score in the sum."""
    name: str | None = Field(None, min_length=1)
    """Name in metrics and records; default: its function's or class's."""

    def load(self) -> Callable[..., Any]:
        """Return the reward function, called exactly as TRL's; made in the process that scores."""
        raise NotImplementedError(f"{type(self).__name__} has no `load`")

    @property
    def full_name(self) -> str:
        """Name without a `name`, where another reward has the same `short_name`."""
        return self.type

    @property
    def short_name(self) -> str:
        """Name without a `name`."""
        return self.full_name.rpartition(":")[2]

    @property
    def code(self) -> tuple[str, ...]:
        """Code of the user's that it scores with, as `module:name` or `path/file.py:name`."""
        return (self.type,) if ":" in self.type else ()

    @property
    def files(self) -> tuple[str, ...]:
        """Files that it is loaded from as they are, where it scores."""
        return ()

    @property
    def source(self) -> ModelConfig | None:
        """The model that it scores with, if it is a reward model."""
        return None

    @property
    def folders(self) -> tuple[str, ...]:
        return ()

    @property
    def with_environment(self) -> bool:
        """True if it is computed beside the environments, and never without."""
        return False

    @property
    def needs_gpu(self) -> bool:
        """True if it computes on a GPU of the process that scores."""
        return False

    @property
    def needs_engine(self) -> str | None:
        """Engine of rollout workers that it computes with, whose interpreter it then runs under;
        None for one that runs under the reward workers'."""
        return None

    @property
    def is_model(self) -> bool:
        """True if it is nothing but a model, which has a process of its own: no user's code runs
        there, so what ends that process is no failure of the completions."""
        return False

    @property
    def takes_prompt_ids(self) -> bool:
        """True if it is given the token ids of the prompts, in the process of a model."""
        return False

    def process_variables(self, visible: str | None) -> dict[str, str]:
        """Return the environment variables that the process of a model has. The process that scores
        sees the GPUs that `visible` lists; None: all. Raises `RewardError`."""
        return {}

    def with_template(self, options: dict[str, Any]) -> Self:
        """Return the same with options for the chat template, if it uses one and has none."""
        return self

    @property
    def sends(self) -> str | None:
        """The secret that it sends, and where to, in words; None if it sends none."""
        return None

    @property
    def by_problem(self) -> bool:
        """True if it is called for each problem alone, and not once for a shard."""
        return False

    @property
    def own_processes(self) -> int | None:
        """Number of its own processes; None: it is called in the one that rewards share."""
        return None

    def time_limit_s(self, num_completions: int, timeout_s: float) -> float:
        """Return the limit of a call with so many completions; `timeout_s` is the usual one."""
        return timeout_s


def _of_its_kind(value: Any) -> Any:
    return of_its_kind(value, RewardTerm, KINDS)


Term = Annotated[SerializeAsAny[RewardTerm], BeforeValidator(_of_its_kind)]


SANDBOX = "sandbox"
HUB_MODEL = re.compile(r"(?P<model>[\w-][\w.-]*/[\w-][\w.-]*)@(?P<revision>[\w./-]+)")
"""A model of the hub at a branch, tag or commit."""

FORMS = (
    "`package.module:function`, `path/file.py:function`, `sandbox` for programs and their test "
    "cases, or a reward model: its folder as `./folder` or its id on the hub as `org/model`"
)


def in_full(spec: str) -> dict[str, Any]:
    """Return the settings of the term that the short form stands for; raise `ValueError` if it
    stands for none:

        rewards.py:correct, package.module:correct    a function or an environment
        sandbox                                       the kind of that name
        ./models/judge, org/judge, org/judge@v1.0     a reward model
    """
    if spec.count(":") > 1 and "," in spec:
        raise ValueError(f"{spec!r} holds several rewards; write them one by one")
    if ":" in spec:
        return {"type": "function", "function": spec}
    if spec == SANDBOX:
        return {"type": SANDBOX}
    if "/" in spec and not spec.endswith(".py"):
        named = HUB_MODEL.fullmatch(spec)
        return {"type": "model", **(named.groupdict() if named else {"model": spec})}
    raise ValueError(f"{spec!r} is no reward; write {FORMS}")


def _listed(functions: Any) -> Any:
    return (functions,) if isinstance(functions, str) else functions


def _checked(functions: tuple[str, ...]) -> tuple[str, ...]:
    for spec in functions:
        in_full(spec)
    return functions


Functions = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_checked)]
"""Rewards in their short form; one alone may stand without a list."""


class SandboxSettings(Section):
    """`[rewards.sandbox]`: where programs that a model wrote are run."""

    place: Annotated[Literal["local", "modal"] | None, NO_NUMBERS] = None
    """Where programs run: isolated on the machine that scores, or in Modal Sandboxes. Default:
    `modal` inside a container on Modal, otherwise `local`."""
    lanes: Annotated[int | None, NO_NUMBERS] = Field(None, ge=1)
    """Number of programs that run at the same time, for all reward workers together; each process
    with reward functions has an equal part. Default: one per core, and with Modal Sandboxes four
    for each image of each worker."""
    allow_unisolated: Annotated[bool, NO_NUMBERS] = False
    """Run programs even if they cannot be isolated: as you, with access to your files and your
    network. `mortal doctor` says whether this machine can isolate them."""


class RewardsConfig(Section):
    """`[rewards]`: reward functions, which are plain callables with TRL's signature."""

    functions: Functions = ()
    """Rewards, each written as `module:function` or `path/file.py:function`; a reward model as
    `./folder` or `org/model`, its id on the hub; or `sandbox`, which runs completions as programs
    against the test cases of the dataset, and scores if nothing is named."""
    weights: Annotated[tuple[float, ...] | None, Decides("reward_weights")] = None
    """Weight of each function's score in the sum; default: 1 each."""
    terms: tuple[Term, ...] = ()
    """The same in full, in place of `functions` and `weights`: tables `[[rewards.terms]]` with a
    `type`, a `weight`, a `name`, and the settings of that type. `type = "function"` has one,
    `function`; docs/rewards.md lists the others, docs/extending.md shows how to write one of your
    own."""
    dry_run: Annotated[bool, NO_NUMBERS] = True
    """Call each function once with a made-up completion before anything else starts, and `reset`
    of environments with two rows."""
    num_reward_workers: Annotated[int, NO_NUMBERS] = Field(1, ge=1)
    """Reward workers, each of which scores one shard at a time; more than the batch has shards are
    of no use. The number of workers does not affect a run's bits."""
    timeout_s: Annotated[float, NO_NUMBERS] = Field(60.0, gt=0)
    """Time limit for one call of one function, in seconds."""
    # How a failing reward is met may be changed in mid-run: that is how a run goes on after it.
    retries: Annotated[int, NO_NUMBERS] = Field(2, ge=0)
    """How often to call a function again after it raised, hung, ended its process or returned
    something that is not a list of scores."""
    on_error: Annotated[Literal["raise", "mask"], NO_NUMBERS] = "raise"
    """What to do when the retries fail as well: `raise` stops the run; `mask` excludes the problems
    on which the function fails from training."""
    credentials: Annotated[tuple[str, ...], NO_NUMBERS] = ()
    """Names of environment variables that reward functions see although they hold credentials:
    `PREFECT_*`, `MODAL_*`, and the keys of W&B, Hugging Face and clouds."""
    sandbox: Annotated[SandboxSettings, NO_NUMBERS] = SandboxSettings()
    accept_changed: Annotated[str | None, NO_NUMBERS] = None
    """Digest of the edited reward sources with which the run may continue. The error that stopped
    the run names it; `mortal resume --accept-changed-rewards` sets it."""

    @model_validator(mode="after")
    def _written_in_one_way(self) -> Self:
        if self.terms and (self.functions or self.weights is not None):
            raise ValueError(
                "functions and weights are the short form of terms; write all rewards in one of "
                "the two: as a term, a function is { type = 'function', function = 'file.py:name' }"
            )
        if self.weights is not None and len(self.weights) != len(self.functions):
            raise ValueError(
                f"weights has {len(self.weights)} numbers for {len(self.functions)} functions; "
                "give one each"
            )
        return self

    @property
    def code(self) -> tuple[str, ...]:
        """Code of the user's that scores (see `RewardTerm.code`)."""
        return tuple(spec for term in self.all_terms for spec in term.code)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of models that score (see `RewardTerm.folders`)."""
        return tuple(folder for term in self.all_terms for folder in term.folders)

    @property
    def are_named(self) -> bool:
        """True if it names a reward; otherwise test cases score, as `sandbox`."""
        return bool(self.terms or self.functions)

    @property
    def all_terms(self) -> tuple[RewardTerm, ...]:
        if self.terms:
            return self.terms
        functions = self.functions or (SANDBOX,)
        weights = self.weights or (1.0,) * len(functions)
        given = [
            {**in_full(spec), "weight": weight}
            for spec, weight in zip(functions, weights, strict=True)
        ]
        return tuple(map(_of_its_kind, given))

    def judging_by(self, functions: Sequence[str] | None) -> RewardsConfig:
        """Return the same with `functions`, each with weight 1, in the place of its own; None: as
        it is."""
        if functions is None:
            return self
        changes = {"functions": tuple(functions), "weights": None, "terms": ()}
        return self.model_copy(update=changes)

    def pinned(self, commit_of: Callable[[ModelConfig], str | None]) -> RewardsConfig:
        """Return the same with the commits of reward models of the hub, which `commit_of` returns
        for one term after the other; None: as it is."""
        if not self.are_named:
            return self
        sources = [term.source for term in self.all_terms]
        commits = [commit_of(source) if source else None for source in sources]
        if self.terms:
            terms = [
                term.model_copy(update={"revision": commit}) if commit else term
                for term, commit in zip(self.terms, commits, strict=True)
            ]
            return self.model_copy(update={"terms": tuple(terms)})
        pairs = zip(self.functions, self.all_terms, commits, strict=True)
        functions = [
            f"{term.source.name_or_path}@{commit}" if term.source and commit else written
            for written, term, commit in pairs
        ]
        return self.model_copy(update={"functions": tuple(functions)})
