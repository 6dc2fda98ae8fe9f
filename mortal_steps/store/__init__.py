"""The run directory on disk: what lies where, and how it is committed and checked.

run_store, records           folders and records, written atomically, verified: `RunStore`
json_record, shard_columns   the two ways of writing a record
columns, seal                columns in a Parquet file that proves itself
files                        single files: whole or not at all, digested
"""

from mortal_steps.store.folders import FOLDER_MANIFEST, listed_files
from mortal_steps.store.json_record import FORMAT, check_format
from mortal_steps.store.run_store import RunStore

__all__ = ["FOLDER_MANIFEST", "FORMAT", "RunStore", "check_format", "listed_files"]
