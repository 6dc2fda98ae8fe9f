"""A run's identity as it lies in the run directory: run.json, and what is named beside it.

Nothing else in the run directory tells what is in these files, so a damaged one stops the run.
"""

from mortal_steps.errors import CorruptFileError
from mortal_steps.store.files import digest_file
from mortal_steps.store.run_store import RunStore
from mortal_steps.types.identity import RunInfo

IDENTITY_FILE = "run.json"
CONFIG_FILE = "config.toml"
NO_OTHER_COPY = (
    "nothing else in the run holds what was in it; restore the file from a copy, or train again "
    "under another --run-id"
)


def read_identity(store: RunStore) -> RunInfo | None:
    """Return the run's identity, if any. Raises `CorruptFileError`, `NewerFormatError`."""
    try:
        found = store.find_record(IDENTITY_FILE, RunInfo)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; {NO_OTHER_COPY}") from None
    return found[1] if found else None


def check_config(store: RunStore, info: RunInfo) -> None:
    """Raise `CorruptFileError` unless config.toml is what it was when the run began."""
    path = store.path(CONFIG_FILE)
    if not path.exists() or digest_file(path) != info.config_sha256:
        raise CorruptFileError(
            f"{path} is missing or was altered since the run began; restore it, or train with "
            "other settings under another --run-id"
        )
