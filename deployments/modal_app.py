"""MORTAL on Modal: every decorator, no logic.

    modal deploy -m mortal_deployments.modal_app

Each run and worker number is a parameter set of its own, and so a pool of one container at most.
The plain worker is made inside it (`mortal_steps.compute.modal.host`).
"""

from pathlib import Path

import modal

from mortal_deployments.images import (
    VOLUME,
    node_image,
    orchestrator_image,
    reward_image,
    trainer_image,
    vllm_image,
)
from mortal_steps.compute.modal.endpoint import NEWEST
from mortal_steps.compute.modal.host import Order, Outcome, WorkerHost
from mortal_steps.compute.modal.release import Deployed, this_release
from mortal_steps.config import RunConfig
from mortal_steps.runs.verify import FinishedCheck, check_run

RUNS = Path("/runs")
SERVED_AT = 8000
"""Port of vLLM's server in its container."""

app = modal.App("mortal", include_source=False)
runs = modal.Volume.from_name(VOLUME, create_if_missing=True, version=2)
hub = modal.Volume.from_name("mortal-hub", create_if_missing=True, version=2)

WORKER = {
    "volumes": {RUNS.as_posix(): runs, "/hub": hub},
    "max_containers": 1,
    "scaledown_window": 300,
    "timeout": 24 * 3600,  # all that Modal allows; a run has deadlines of its own
    "retries": 0,  # the flow's tasks retry
}


@app.function(image=trainer_image, timeout=600, retries=2)
def about() -> Deployed:
    """What is deployed."""
    return Deployed(release=this_release(), volume=VOLUME)


@app.function(image=trainer_image, volumes={RUNS.as_posix(): runs}, timeout=6 * 3600)
def verify(run_id: str) -> FinishedCheck:
    """Every file of a run against its digest, read beside the Volume."""
    runs.reload()  # a container that has answered before
    return FinishedCheck(check_run(RUNS, run_id), driven=False)


@app.function(
    image=orchestrator_image,
    single_use_containers=True,  # Prefect's settings are a process's for good
    timeout=24 * 3600,
    retries=modal.Retries(max_retries=10, initial_delay=10.0),  # a long run's timeouts, say
)
def orchestrate(config: RunConfig) -> str:
    """Drive a run to its end; how it ended."""
    from mortal.remote.detach import drive_here  # in this image alone

    return drive_here(config)


@app.local_entrypoint()
def main(config: str, run_id: str) -> None:
    """`modal run --detach -m mortal_deployments.modal_app --config my.toml --run-id mine`."""
    # Called on the user's machine; containers need none of these.
    from mortal_steps.compute.modal.detached import for_run
    from mortal_steps.config.loader import load_config
    from mortal_steps.orchestration.detaching import prepare

    settings = load_config(Path(config)).model_copy(update={"run_id": run_id})
    prepare(settings)
    for_run(orchestrate, settings).remote(settings)


class Worker:
    """One worker of one run; its class says where, its parameters which."""

    node = False
    run_id: str

    @modal.enter()
    def begin(self) -> None:
        """Be ready for orders."""
        self.host = WorkerHost(
            runs_dir=RUNS, run_id=self.run_id, volume=runs, volume_name=VOLUME, node=self.node
        )

    @modal.method()
    def call(self, order: Order) -> Outcome:
        """Carry out one order."""
        return self.host.call(order)


@app.cls(image=trainer_image, gpu="A100", **WORKER)
class ActorWorker(Worker):
    """The actor."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()


@app.cls(image=vllm_image, gpu="A10", **WORKER)
class RolloutWorker(Worker):
    """A rollout worker that samples with vLLM."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()


@app.cls(image=trainer_image, gpu="A10", **WORKER)
class TransformersRolloutWorker(Worker):
    """A rollout worker that samples with transformers."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()


@app.cls(image=reward_image, cpu=1.0, memory=1024, **WORKER)
class RewardWorker(Worker):
    """Reward functions, where they do not run beside the flow."""

    run_id: str = modal.parameter()
    number: int = modal.parameter()

    @modal.exit()
    def end(self) -> None:
        """Let the sandboxes go that its functions use."""
        self.host.close()


@app.cls(image=node_image, gpu="A100", **WORKER)
class SingleNodeWorker(Worker):
    """The actor and a rollout worker that samples with either engine, taking turns."""

    node = True
    run_id: str = modal.parameter()
    number: int = modal.parameter()


@app.cls(
    image=vllm_image,
    gpu="A10",
    volumes={RUNS.as_posix(): runs, "/hub": hub},
    scaledown_window=300,
    timeout=24 * 3600,
    max_containers=1,
)
@modal.concurrent(max_inputs=64)
class Endpoint:
    """A run's model through vLLM's own OpenAI-compatible server; its requests carry a key."""

    run_id: str = modal.parameter()
    step: int = modal.parameter(default=NEWEST)

    @modal.web_server(SERVED_AT, startup_timeout=1800, requires_proxy_auth=True)
    def serve(self) -> None:
        """Start the server; Modal waits for its port."""
        from mortal_steps.serving.container import start_server  # what no other container needs

        start_server(RUNS, self.run_id, None if self.step == NEWEST else self.step, SERVED_AT)
