"""`mortal gc` knows what killed runs have left in shared memory."""

from __future__ import annotations

import os
import time

from mortal.keeping import gc
from mortal_steps.store.segments import ABANDONED_S, SHARED_MEMORY, Segment


def test_memory_that_a_killed_run_has_left_is_removed(tmp_path):
    living, left = Segment(tmp_path, 1000), Segment(tmp_path, 1000)
    try:
        long_ago = time.time() - 2 * ABANDONED_S
        for segment in (living, left):
            os.utime(SHARED_MEMORY / segment.name, (long_ago, long_ago))
        left._memory.close()
        os.close(left._file)  # as a kill does
        planned = gc.plan(tmp_path)
        ours = [item for item in planned.items if left.name in item.what]
        assert len(ours) == 1 and ours[0].num_bytes >= 1000
        assert not [item for item in planned.items if living.name in item.what]
        ours[0].remove()
        assert not (SHARED_MEMORY / left.name).exists()
    finally:
        (SHARED_MEMORY / left.name).unlink(missing_ok=True)
        living.remove()
