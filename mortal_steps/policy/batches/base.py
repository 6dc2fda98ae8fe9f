"""What a train step is given: a reference to files of the run, of one kind for each sort of
algorithm.

MORTAL's kinds are the other modules of this folder. Journal, logs and `mortal verify` ask a batch
for what they need, and never of which kind it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from mortal_steps.store import RunStore
from mortal_steps.store.json_record import adapter
from mortal_steps.types import FileRef, RewardRef
from mortal_steps.users_code.loading import import_code


class Batch(ABC):
    """A reference to what one step trains on. A kind is a frozen dataclass derived from this,
    without slots.

    Of a batch that a killed run asks for again, `content` must be the same as before.
    """

    kind: ClassVar[str | None] = None
    """Name of the kind in records and messages: how other processes find the class, such as
    `file.py:Class`. None: `module:Class`. The kinds of version 0.1.0 have the empty name, and are
    told apart by their fields."""

    @classmethod
    def name(cls) -> str:
        """Return the kind's name in records. A kind derived from another has a name of its own."""
        kind: str | None = cls.__dict__.get("kind")
        return f"{cls.__module__}:{cls.__qualname__}" if kind is None else kind

    @abstractmethod
    def files(self) -> list[FileRef]:
        """Return every committed file that the step needs: each is verified. What several steps
        need lies outside of `steps/`, whose old rollouts may be deleted."""

    @abstractmethod
    def content(self, store: RunStore) -> dict[str, Any]:
        """Return what the batch consists of, in JSON: digests of files, or values. The digest of
        this, and of the step, is the batch's."""

    @abstractmethod
    def read(self, store: RunStore, step: int, plan: Any) -> Any:
        """Return the batch as a `Stepper` is given it, an object with its `step`. `plan` is the
        `TrainerPlan` of the run. Raises `CorruptFileError`, and `StoreError` for files of another
        step or run."""

    @property
    def shards(self) -> Sequence[RewardRef]:
        """The scored completions among it, one reference a shard."""
        return ()

    @property
    def selection(self) -> Any:
        """What the step sampled and kept, where a selection chose it: a `Selected`."""
        return None

    def counts(self) -> Mapping[str, float]:
        """Return what the step's line of metrics.jsonl counts, beside completions."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (_written(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if cls is not Batch:
            return handler(source)
        write = core_schema.plain_serializer_function_ser_schema(_written)
        return core_schema.no_info_plain_validator_function(_read, serialization=write)


def _written(batch: Batch) -> dict[str, Any]:
    dumped = adapter(type(batch)).dump_python(batch, mode="json")
    values = {name: value for name, value in dumped.items() if value is not None}
    return {"kind": batch.name(), **values} if batch.name() else values


def _read(values: Any) -> Batch:
    """Raises `ValueError` for values of no kind that is known here."""
    if isinstance(values, Batch):
        return values
    given = dict(values)
    name = given.pop("kind", "")
    kinds = {kind.name(): kind for kind in Batch.__subclasses__() if kind.name()}
    found = kinds.get(name) if name else _of_0_1_0(given)
    if found is None and ":" in name:
        found = import_code(name, f"a batch of the kind {name!r}")
    if not (isinstance(found, type) and issubclass(found, Batch)):
        raise ValueError(f"there is no kind of batch {name!r} with {sorted(given)}")
    batch: Batch = adapter(found).validate_python(given)
    return batch


def _of_0_1_0(given: Mapping[str, Any]) -> type[Batch] | None:
    """Return the kind whose fields these are, among those that go without a name."""
    unnamed = (kind for kind in Batch.__subclasses__() if not kind.name())
    return next((kind for kind in unnamed if _required(kind) <= given.keys()), None)


def _required(kind: type[Batch]) -> set[str]:
    found = fields(kind)  # type: ignore[arg-type]
    return {field.name for field in found if field.default is MISSING}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """Take one train step."""

    step: int
    batch: Batch
    publish: bool
    """Whether the weights after the step are published for sampling."""
