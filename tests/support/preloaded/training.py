"""What processes of tests train with, and what drives runs, but for Prefect: it reads its settings
when it is imported. Garbage is not looked for in all of this, once a trainer at least."""

import os

from mortal_steps.system.imports import imports_without_gc

os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # as drivers of runs have it
known = dict(os.environ)
with imports_without_gc():
    # Judges and agents import openai, Prefect the others.
    import jsonschema  # noqa: F401
    import openai.resources  # noqa: F401
    import opentelemetry.trace  # noqa: F401
    import pydantic_extra_types.pendulum_dt  # noqa: F401
    import rich.markdown  # noqa: F401
    import typer  # noqa: F401
    import websockets  # noqa: F401

    from mortal_steps.orchestration import driver, session  # noqa: F401
    from mortal_steps.orchestration.checking import preflight  # noqa: F401
    from mortal_steps.recipes import recipe  # noqa: F401
    from mortal_steps.report import progress, recorder, summary  # noqa: F401
    from mortal_steps.rollout.engines.transformers import engine  # noqa: F401
    from tests.support import forked_commands  # noqa: F401
    from tests.support.environments import killed_shard  # noqa: F401
    from tests.support.forking import environment
    from tests.support.parity import sides  # noqa: F401
    from tests.support.policy import ranks  # noqa: F401

    environment.SET_BY_IMPORTS.update(
        {name: value for name, value in os.environ.items() if name not in known}
    )
