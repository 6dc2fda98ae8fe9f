"""One tree of errors, each named after the boundary it crossed. All survive pickling.

`TransientError` and what is below it may be retried; everything else is final.
"""


class MortalError(Exception):
    """Base of every error that MORTAL raises on purpose. The message says what to do."""


class ConfigError(MortalError):
    """A configuration key is unknown, malformed, or contradicts another one."""


class DataError(MortalError):
    """A dataset cannot be found, read or used."""


class BatchSourceError(MortalError):
    """What supplies the batches cannot be reached, or sent what cannot be trained on."""


class ModelError(MortalError):
    """A model folder or its tokenizer cannot be used."""


class RewardError(MortalError):
    """A reward function cannot be imported, raised, or returned something that is no score."""


class HarnessError(MortalError):
    """A harness cannot be used, failed, or answered no scores; nobody knows what it would have."""


class EnvironmentFailedError(MortalError):
    """An environment or tool failed again; nobody knows what it would have answered."""


class SandboxError(MortalError):
    """A sandbox did not start or was lost, and lost again; nobody knows what the program does."""


class JudgeError(MortalError):
    """A judge gave no score, although it was asked again; nobody knows what it would have said."""


class NoIsolationError(MortalError):
    """This machine cannot shut a program in, and the configuration does not say to go without."""


class StoreError(MortalError):
    """The run directory cannot be used, or contradicts what is asked of it."""


class ProductionMovedError(StoreError):
    """Another model is in production than the one that a decision was taken against."""


class DiskError(StoreError):
    """The disk is full or faulty; the same write may succeed when somebody has seen to that."""


class CorruptFileError(StoreError):
    """A committed file is missing, truncated or altered; the message names it."""


class NewerFormatError(StoreError):
    """A newer version of MORTAL wrote a file, in a way that this one does not know."""


class LeaseLostError(StoreError):
    """Another process drives the run now; this one must not write to it any more."""


class RunNotFoundError(StoreError):
    """There is no such run under this runs directory."""


class RunStoppedError(MortalError):
    """Somebody asked the run to stop; it saved its state and goes on when it is resumed."""


class RecipeError(MortalError):
    """A stage of a recipe has ended with an error that is not MORTAL's, or without its product."""


class WeightsMismatchError(MortalError):
    """A rollout worker's weights are not the version it was told to sample with."""


class ActorStateError(MortalError):
    """The actor was asked for a step that its committed state cannot reach."""


class DivergedError(MortalError):
    """A train step made weights that are not finite; nothing that comes after it is of use."""


class CheckpointMismatchError(MortalError):
    """What was restored from a checkpoint is not what was saved there."""


class EngineError(MortalError):
    """An inference engine refused a request or gave an unusable answer."""


class UnusableProcessError(MortalError):
    """A worker's process can compute no more: it ends, and a new one repeats the call."""


class WorkerError(MortalError):
    """A worker's method raised an error of its own; the message carries the remote traceback."""


class FunctionError(MortalError):
    """A function that is a stage of a recipe raised; the message carries its traceback."""


class ComputeError(MortalError):
    """Where workers run cannot be used: no account, no such app, another version of it."""


class ServerError(MortalError):
    """The Prefect server cannot be started or reached."""


class TransientError(MortalError):
    """Infrastructure failed; the same call may succeed when repeated."""


class WorkerLostError(TransientError):
    """A worker process ended in mid-call (killed, out of memory, machine lost)."""
