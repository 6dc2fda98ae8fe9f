"""What processes of tests train with; garbage is not looked for in it, once a trainer at least."""

import os

from mortal_steps.system.imports import imports_without_gc

os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # as drivers of runs have it
known = dict(os.environ)
with imports_without_gc():
    from mortal_steps.rollout.engines.transformers import engine  # noqa: F401
    from tests.support import forked_commands
    from tests.support.environments import killed_shard  # noqa: F401
    from tests.support.parity import sides  # noqa: F401
    from tests.support.policy import ranks  # noqa: F401

    forked_commands.SET_BY_IMPORTS.update(
        {name: value for name, value in os.environ.items() if name not in known}
    )
