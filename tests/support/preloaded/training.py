"""What processes of tests train with, and what drives runs; Prefect is put aside. Garbage is not
looked for in all of this, once a trainer at least."""

import os

from mortal_steps.system.imports import imports_without_gc

os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # as drivers of runs have it
OF_PREFECT = (
    "prefect.main",
    "prefect.concurrency.asyncio",
    "prefect.deployments.runner",
    "prefect.flow_engine",
    "prefect.task_engine",
    "prefect.utilities.visualization",
)
known = dict(os.environ)
with imports_without_gc():
    # Judges and agents import openai, reports matplotlib and PIL, Prefect the others.
    import fastapi.encoders  # noqa: F401
    import jsonschema  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401
    import openai.resources  # noqa: F401
    import PIL.PngImagePlugin  # noqa: F401
    import rich.markdown  # noqa: F401
    import typer  # noqa: F401
    import websockets  # noqa: F401

    from mortal_steps.orchestration import driver, session  # noqa: F401
    from mortal_steps.orchestration.checking import preflight  # noqa: F401
    from mortal_steps.policy.algorithms import grpo, reward, sft  # noqa: F401
    from mortal_steps.recipes import recipe  # noqa: F401
    from mortal_steps.recipes.kinds import promote, train  # noqa: F401
    from mortal_steps.report import progress, recorder, summary  # noqa: F401
    from mortal_steps.rewards.kinds import model, users_code  # noqa: F401
    from mortal_steps.rollout.engines.transformers import engine  # noqa: F401
    from tests.support import forked_commands  # noqa: F401
    from tests.support.environments import killed_shard  # noqa: F401
    from tests.support.forking import aside, environment
    from tests.support.parity import sides  # noqa: F401
    from tests.support.policy import ranks  # noqa: F401

    aside.put_aside(OF_PREFECT)
    environment.SET_BY_IMPORTS.update(
        {name: value for name, value in os.environ.items() if name not in known}
    )
