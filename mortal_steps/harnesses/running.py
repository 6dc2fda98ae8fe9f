"""Lets a harness, in a process of its own, ask the engine of a rollout worker."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mortal_steps.config.eval_sets import Harness, Policy
from mortal_steps.errors import HarnessError, WorkerError
from mortal_steps.harnesses.handler import Found
from mortal_steps.harnesses.server import PolicyServer
from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.process import HostProcess, without_proxy
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.http.server import HOST
from mortal_steps.rollout.plan import SamplerPlan
from mortal_steps.rollout.prompts import render
from mortal_steps.types import HarnessAnswer, HarnessRequest

HANDLER = "mortal_steps.harnesses.handler:HarnessHandler"
NO_LIMIT_S = 1e7
"""Seconds for a harness as a whole, most of which it waits; its own time has a limit."""


def ask_harness(
    request: HarnessRequest,
    plan: SamplerPlan,
    engine: Engine,
    tokenizer: Any,
    *,
    model_path: str,
    before_start: Callable[[], None],
) -> HarnessAnswer:
    """Return what the harness of the request answers about the engine's weights. `before_start` is
    called before its code is loaded. Raises `HarnessError` and, where its process was killed from
    outside, `WorkerLostError`."""
    harness = plan.harnesses[request.name]
    server = PolicyServer(
        engine,
        request.weights.version,
        tokenizer,
        lambda prompt: render([prompt], tokenizer, plan.template_options)[0],
        seed=plan.seed,
        max_tokens=request.max_tokens,
        lowest_temperature=plan.rollout.engine_kind.lowest_temperature,
    )
    host = HostProcess(
        HANDLER,
        {"name": request.name, "harness": harness},
        passed_on=plan.tools.passed_on,
        before_start=before_start,
        variables=without_proxy(os.environ),
    )
    policy = Policy(
        base_url=f"http://{HOST}:{server.port}/v1",
        model="policy",
        model_folder=model_path,
        max_model_len=engine.max_model_len,
        max_tokens=request.max_tokens,
        step=request.step,
        seed=plan.seed,
    )
    with contextlib.closing(server), contextlib.closing(host):
        found = _asked(host, server, harness, policy, request.name)
    return HarnessAnswer(
        step=request.step,
        policy_version=request.weights.version,
        number=found.number,
        scores=found.scores,
        reward=found.reward,
        num_completions=server.num_completions,
        num_tokens=server.num_tokens,
    )


def _asked(
    host: HostProcess, server: PolicyServer, harness: Harness, policy: Policy, name: str
) -> Found:
    named = f"evaluation.sets.{name}: {harness.type}"
    host.start()
    fork = host.fork()
    is_late = False
    with ThreadPoolExecutor(1, thread_name_prefix="harness") as threads:
        ended = threads.submit(
            fork.call, "evaluate", returns=Found, timeout_s=NO_LIMIT_S, policy=policy
        )
        try:
            is_late = not server.answer_until(ended, harness.timeout_s)
        finally:
            fork.kill()  # the thread ends with it
    fork.close()
    if is_late:
        raise HarnessError(
            f"{named} neither asked nor ended within {harness.timeout_s:g} s "
            f"(evaluation.sets.{name}.timeout_s)"
        )
    try:
        found: Found = ended.result()
    except HostLostError as lost:
        if lost.how.endswith("SIGKILL"):  # which no code does to itself
            raise
        raise HarnessError(
            f"{named}: its process was lost: {lost.how}\n{lost.stack}".rstrip()
        ) from None
    except WorkerError as error:
        raise HarnessError(f"{named} failed: {error}") from None
    return found
