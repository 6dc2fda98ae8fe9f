"""MORTAL on Modal: every decorator, no logic.

    modal deploy -m mortal_deployments.modal_app
    modal run -m mortal_deployments.modal_app::main --max-steps 5

Each run and worker number is a parameter set of its own, and so a pool of one container at most.
The plain worker is made inside it (`mortal_steps.places.modal.inside.host`).
"""

from pathlib import Path
from typing import Any

import modal

from mortal_deployments.images import (
    CLUSTER,
    VOLUME,
    node_image,
    orchestrator_image,
    trainer_image,
    vllm_image,
)
from mortal_steps.config import ComputeConfig
from mortal_steps.flags import with_modal_flags
from mortal_steps.places.modal.gpus import reserved
from mortal_steps.places.modal.inside.cluster import ClusterHost
from mortal_steps.places.modal.inside.host import WorkerHost
from mortal_steps.places.modal.messages import CallRequest, CallResult
from mortal_steps.places.modal.release import HUB_VOLUME, Deployed, this_release
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.plan import SamplerPlan
from mortal_steps.rollout.trial import SampledProblems, sample_here
from mortal_steps.runs.verify import RunCheck, check_run
from mortal_steps.types import Problem, SamplingParams

RUNS = Path("/runs")

app = modal.App("mortal", include_source=False)
runs = modal.Volume.from_name(VOLUME, create_if_missing=True, version=2)
hub = modal.Volume.from_name(HUB_VOLUME, create_if_missing=True, version=2)

APART, TOGETHER = ComputeConfig(), ComputeConfig(mode="single_node")


# What is reserved is what a container has for certain: Modal's own default is an eighth of a core
# and 128 MiB. A run's own `[compute.modal]` goes before these defaults.
WORKER = {
    "volumes": {RUNS.as_posix(): runs, "/hub": hub},
    "max_containers": 1,
    "scaledown_window": 300,
    "timeout": 24 * 3600,  # all that Modal allows; a run has deadlines of its own
    "retries": 0,  # the flow's tasks retry
}


@app.function(image=trainer_image, timeout=600, retries=2)
def about() -> Deployed:
    """Return what is deployed."""
    return Deployed(release=this_release(), volume=VOLUME, cluster=CLUSTER)


@app.function(image=trainer_image, volumes={RUNS.as_posix(): runs}, timeout=6 * 3600, cpu=2.0)
def verify(run_id: str) -> RunCheck:
    """Every file of a run against its digest, read beside the Volume."""
    runs.reload()  # a container that has answered before
    return check_run(RUNS, run_id)


@app.function(
    image=orchestrator_image,
    cpu=2.0,
    memory=4096,  # the flow, its Prefect server and the workers for rewards
    single_use_containers=True,  # Prefect's settings are a process's for good
    timeout=24 * 3600,
    retries=modal.Retries(max_retries=10, initial_delay=10.0),  # a long run's timeouts, say
)
def orchestrate(config: RunConfig) -> str:
    """Drive a run to its end; how it ended."""
    from mortal.remote.detach import drive_in_container  # in this image alone

    return drive_in_container(config)


TRIAL = {
    **reserved(APART, "rollout"),
    "volumes": {"/hub": hub},
    "max_containers": 1,
    "timeout": 3600,
    "retries": 0,
}


@app.function(image=vllm_image, **TRIAL)
def sample_with_vllm(
    plan: SamplerPlan, problems: list[Problem], num_generations: int, sampling: SamplingParams
) -> SampledProblems:
    """Completions of the model that a run would begin with."""
    return sample_here(plan, problems, num_generations, sampling)


@app.function(image=trainer_image, **TRIAL)
def sample_with_transformers(
    plan: SamplerPlan, problems: list[Problem], num_generations: int, sampling: SamplingParams
) -> SampledProblems:
    """Sample with the other engine."""
    return sample_here(plan, problems, num_generations, sampling)


# What follows is called on the user's machine; containers have no `mortal.remote.modal_run`.


@app.local_entrypoint()
@with_modal_flags
def main(config: str | None = None, run_id: str | None = None, **flags: Any) -> None:
    """`modal run -m mortal_deployments.modal_app::main --config my.toml --max-steps 5`."""
    from mortal.remote.modal_run import begin_run

    begin_run(orchestrate, config, run_id, flags)


@app.local_entrypoint()
@with_modal_flags
def test_rollout_fn(config: str | None = None, prompt: str | None = None, **flags: Any) -> None:
    """`mortal test-rollout`, in a container with a GPU."""
    from mortal.remote.modal_run import try_rollout

    functions = {"vllm": sample_with_vllm, "transformers": sample_with_transformers}
    try_rollout(functions, config, prompt, flags)


@app.local_entrypoint()
@with_modal_flags
def test_reward_fn(config: str | None = None, **flags: Any) -> None:
    """`mortal test-reward`, with programs in Modal Sandboxes."""
    from mortal.remote.modal_run import try_reward

    try_reward(config, flags)


@app.local_entrypoint()
def list_checkpoints_fn(run: str | None = None, volume: str = VOLUME) -> None:
    """`mortal list-checkpoints`, of the runs on the Volume."""
    from mortal.remote.modal_run import list_checkpoints

    list_checkpoints(run, volume)


@app.local_entrypoint()
def clear_cache(model: str | None = None, yes: bool = False) -> None:
    """`mortal clear-cache --modal`."""
    from mortal.remote.modal_run import clear_cache

    clear_cache(model, yes)


MOUNTED: dict[str, Any] = {"runs_dir": RUNS, "volume": runs, "volume_name": VOLUME, "hub": hub}


class Worker:
    """One worker of one run; its class says where, its parameters which."""

    run_id: str

    @modal.enter()
    def begin(self) -> None:
        """Be ready for requests."""
        self.host = WorkerHost(run_id=self.run_id, **MOUNTED)

    @modal.method()
    def call(self, request: CallRequest) -> CallResult:
        """Carry out one request."""
        return self.host.call(request)


@app.cls(image=trainer_image, **reserved(APART, "actor"), **WORKER)
class ActorWorker(Worker):
    """The actor."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()


if CLUSTER is not None:

    @app.cls(
        image=trainer_image,
        gpu=CLUSTER.gpu,
        cpu=CLUSTER.cpu,
        memory=CLUSTER.memory_mb,
        **WORKER | {"max_containers": CLUSTER.containers},
    )
    @modal.clustered(size=CLUSTER.containers, rdma=True)
    class ActorCluster(Worker):
        """An actor with more ranks than one container has GPUs."""

        run_id: str = modal.parameter()
        number: int = modal.parameter()

        @modal.enter()
        def begin(self) -> None:
            """Be ready for requests, with the other containers."""
            cluster = modal.Cluster.from_context()
            self.host = ClusterHost(
                addresses=tuple(cluster.container_ips()),
                number=cluster.container_rank(),
                run_id=self.run_id,
                **MOUNTED,
            )


@app.cls(image=vllm_image, **reserved(APART, "rollout"), **WORKER)
class RolloutWorker(Worker):
    """A rollout worker that samples with vLLM."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()


@app.cls(image=trainer_image, **reserved(APART, "rollout"), **WORKER)
class TransformersRolloutWorker(Worker):
    """A rollout worker that samples with transformers."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()


@app.cls(image=trainer_image, **reserved(APART, "reward"), **WORKER)
class RewardWorker(Worker):
    """Reward functions, where they do not run beside the flow."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()

    @modal.exit()
    def end(self) -> None:
        """Let the sandboxes go that its functions use."""
        self.host.close()


@app.cls(image=node_image, **reserved(APART, "reward"), **WORKER)
class VllmRewardWorker(Worker):
    """The same with teachers that vLLM computes."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()

    @modal.exit()
    def end(self) -> None:
        """Let the sandboxes go that its functions use."""
        self.host.close()


@app.cls(image=node_image, **reserved(TOGETHER, "actor"), **WORKER)
class SingleNodeWorker(Worker):
    """The actor and a rollout worker that samples with either engine, alternating."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()
