"""`[environment]`: what a model talks to, which answers its tool calls."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from mortal_steps.config.field_metadata import NO_NUMBERS, Decides
from mortal_steps.config.section import LocalPath, Section, of_its_kind
from mortal_steps.environments.table import ENVIRONMENTS, TRL
from mortal_steps.orchestration.batch_sources.table import GENERATE
from mortal_steps.rollout.episodes.table import SINGLE_TURN
from mortal_steps.users_code.loading import is_in_file, names_code

OUTAGES = (
    "builtins:ConnectionError",
    "builtins:TimeoutError",
    "socket:gaierror",
    "urllib.error:URLError",
    "requests.exceptions:ConnectionError",
    "requests.exceptions:Timeout",
    "httpx:TransportError",
    "aiohttp:ClientConnectionError",
    "openai:APIConnectionError",
)
"""Exceptions by which a tool says that it could not be asked, by default."""


class PickledCode(Section):
    """A class or function that `MortalTrainer` was given as an object; MORTAL writes these."""

    object: str = Field(pattern=r"^[0-9a-f]{64}$")
    """sha256 of what the object says: code, constants, and the values that it refers to."""
    file: Annotated[LocalPath, NO_NUMBERS]
    """The object, as cloudpickle keeps it. It is code: read SECURITY.md before you use somebody
    else's."""
    modules: Annotated[tuple[str, ...], NO_NUMBERS] = ()
    """Your own modules that it imports, or the files that these are in."""

    @property
    def code(self) -> tuple[str, ...]:
        """Code of the user's that it needs, as `module:name` or `path/file.py:name`."""
        return tuple(f"{module}:object" for module in self.modules)


def _is_spec(spec: str) -> str:
    if not names_code(spec):
        raise ValueError(
            f"{spec!r} names no code; write 'package.module:Name' or 'path/file.py:Name'"
        )
    return spec


Spec = Annotated[str, AfterValidator(_is_spec)]
Code = Spec | PickledCode
"""Code of the user's: `module:Name`, `path/file.py:Name`, or an object."""


class EnvironmentConfig(Section):
    """`[environment]`: tools that the model may call, and environments that they are methods of, as
    TRL's GRPOTrainer takes them (`tools`, `environment_factory`). Without this table, the model
    answers each prompt once.

    A kind of environments by others is a subclass, with settings of its own.
    """

    asks: ClassVar[bool] = False
    """Whether its code asks for the model's messages itself, at an address that it is given; the
    code of other kinds is called, for what the model says."""

    # That of a kind belongs to the fingerprint; runs from before there were kinds have none.
    type: Annotated[str, NO_NUMBERS] = TRL
    """`trl`: classes and tools as TRL's GRPOTrainer takes them. `agent`: a function of yours that
    asks the model itself, through an OpenAI-compatible address. `gem`, `skyrl`, `textarena`,
    `openenv`, `verifiers`: environments for these interfaces, as they are. Or a kind of your own
    (`file.py:Class` or `module:Class`)."""
    factory: Code | dict[str, Code] | None = None
    """Class (or function that returns an instance) of the environment: `reset(**row)`, public
    methods as tools, `get_reward()` if it has one. A table of several gives each a name, and the
    column `environment` of each row says which is its own."""
    tools: tuple[Code, ...] = ()
    """Functions that the model may call in every environment, or without one: annotated parameters,
    a docstring in Google's style; sync or async."""
    max_tool_calling_iterations: Annotated[int | None, Decides("max_tool_calling_iterations")] = (
        Field(None, ge=0)
    )
    """How many times in one completion the model's calls are answered. Default: until it calls
    nothing, or `rollout.max_tokens` is reached, which counts the answers' tokens, too. Replies to
    messages that call nothing (`_reply`) count, too."""
    timeout_s: Annotated[float, NO_NUMBERS] = Field(60.0, gt=0)
    """Seconds that one `reset`, tool call or `get_reward` may take."""
    retries: Annotated[int, NO_NUMBERS] = Field(2, ge=0)
    """How many more times a `reset`, a call or a `get_reward` is tried that timed out or ended its
    process; each time in a new process, in which the earlier calls are made again. After an outage
    it is tried again later, in 1, 2, 4, ... s and at most 10 s, for `retries` times `timeout_s`."""
    on_error: Annotated[Literal["raise", "mask"], NO_NUMBERS] = "raise"
    """What to do about an episode whose environment keeps failing. `raise`: the run stops; `mask`:
    only the other episodes of its group are trained on. It is never scored 0."""
    outages: tuple[Spec, ...] = OUTAGES
    """Exceptions, as `module:Name` or `path/file.py:Name`, that mean that a tool is not available.
    The call is repeated, and the model never sees them. All other exceptions of a tool are its
    answer, as in TRL: the model reads their message. `[]`: all exceptions are answers, as in
    TRL."""
    python: Annotated[LocalPath | None, NO_NUMBERS] = None
    """Interpreter of the environments' process, such as `.venv-envs/bin/python`: Python 3.11 or
    newer, with pydantic, numpy, cloudpickle, blake3 and what the environments need. MORTAL need not
    be installed in it. Default: that of the rollout workers. On Modal,
    `compute.modal.environment` takes its place."""
    cell: Literal["problem", "episode"] = "problem"
    """What has a process of its own: a problem, whose generations take turns in it and of which
    reward functions see the `environments`; or each episode, so that slow tools of one do not keep
    the others waiting."""

    needs: ClassVar[Mapping[str, str]] = {}
    """Modules that its interpreter must have, by the names of what installs them."""
    is_in: ClassVar[tuple[str, ...]] = ()
    """Those of them that its environments are in."""
    has_rows: ClassVar[bool] = False
    """Whether it brings rows of its own, for `data.source = "environment"`."""

    @model_validator(mode="after")
    def _has_something_to_call(self) -> Self:
        if not self.is_used and self != type(self).model_construct():
            raise ValueError(
                "there is neither a factory nor a tool; set environment.factory or "
                "environment.tools, or leave the table out"
            )
        if isinstance(self.factory, dict) and not self.factory:
            raise ValueError("environment.factory = {}: name at least one environment")
        return self

    def load(self) -> Mapping[str, Callable[..., Any]] | None:
        """Return what makes its environments by name, in their process; None: see `factory`."""
        return None

    def rows(self, *, held_out: bool, limit: int | None) -> Iterable[Mapping[str, Any]]:
        """Return its own rows, or those to hold out, in the process that it lives in: the first
        `limit`, or all of them. Raises `DataError` for rows that there are not."""
        raise NotImplementedError

    @property
    def is_used(self) -> bool:
        """Whether there is anything that the model may call."""
        return self.factory is not None or bool(self.tools)

    @property
    def gives_prompts(self) -> bool:
        """Whether a row may lack a prompt, because `reset` may observe one."""
        return self.factory is not None

    @property
    def factories(self) -> dict[str, str | PickledCode]:
        """The factories by their names; the only one of a run without names is ''."""
        if isinstance(self.factory, dict):
            return self.factory
        return {} if self.factory is None else {"": self.factory}

    @property
    def code(self) -> tuple[str, ...]:
        """Code of the user's that is in it, as `module:name` or `path/file.py:name`."""
        found = [self.type] if self._is_own else []
        for given in self._given:
            found += (given,) if isinstance(given, str) else given.code
        found += [spec for spec in self.outages if is_in_file(spec)]
        return tuple(dict.fromkeys(found))

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that its environments and tools are in, installed or the user's."""
        specs = [spec for spec in self.code if not is_in_file(spec)]
        return (*self.is_in, *(spec.rpartition(":")[0] for spec in specs))

    @property
    def files(self) -> tuple[str, ...]:
        found = [given.file for given in self._given if isinstance(given, PickledCode)]
        return tuple(dict.fromkeys(found))

    @property
    def _given(self) -> tuple[str | PickledCode, ...]:
        return (*self.factories.values(), *self.tools)

    @property
    def _is_own(self) -> bool:
        """Whether the kind is a class of the user's."""
        return ":" in self.type

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle an own kind by its name, which another process imports from its file."""
        if self._is_own:
            return _of_its_kind, (self.model_dump(),)
        return super().__reduce_ex__(protocol)

    @property
    def has_names(self) -> bool:
        """Whether a row's column `environment` chooses its environment."""
        return isinstance(self.factory, dict)


def _of_its_kind(value: Any) -> Any:
    try:
        return of_its_kind(value, EnvironmentConfig, ENVIRONMENTS, imports_own=True)
    except ValidationError:
        raise
    except ValueError as error:
        raise ValueError(
            f"{error}; a class with `reset` and tools is environment.factory, and a function that "
            "asks the model itself is environment.agent, with type = 'agent'"
        ) from None


Environment = Annotated[SerializeAsAny[EnvironmentConfig], BeforeValidator(_of_its_kind)]
"""`[environment]` of any kind."""


def check_beside_environment(
    *,
    algorithm: str,
    stop: tuple[str, ...],
    episodes: str,
    source: str,
    python: str | None,
    in_containers: bool,
) -> None:
    """Raise `ValueError` for what a run with tools or environments cannot have, each by its key."""
    if python is not None and in_containers:
        raise ValueError(
            f"environment.python = {python!r} is an interpreter of this machine, and "
            "compute.backend = 'modal' runs environments in the rollout workers' containers; add "
            "the table [compute.modal.environment], which gives them containers of their own, or "
            "set compute.backend = 'local'"
        )
    if algorithm in ("rloo", "distillation", "opd"):
        raise ValueError(
            f"algorithm.type = {algorithm!r} trains on single turns, and [environment] names tools "
            "or an environment; set algorithm.type = 'grpo', or leave the table out"
        )
    if stop:
        raise ValueError(
            f"rollout.stop = {list(stop)}: with [environment], a turn ends as the model's template "
            "ends a message; leave it out"
        )
    if episodes != SINGLE_TURN:
        raise ValueError(
            f"rollout.episodes = {episodes!r} makes completions, and so does [environment]; leave "
            "out one of the two"
        )
    if source != GENERATE:
        raise ValueError(
            f"rollout.source = {source!r} supplies rollouts that [environment] would make; leave "
            "out one of the two"
        )
