"""The run directory on disk: what lies where, and how it is committed and checked.

run_store   records and folders, written atomically, verified when read     `RunStore`
files       single files: whole or not at all, digested
"""

from mortal_steps.store.run_store import (
    FOLDER_MANIFEST,
    FORMAT,
    RunStore,
    check_format,
    listed_files,
)

__all__ = ["FOLDER_MANIFEST", "FORMAT", "RunStore", "check_format", "listed_files"]
