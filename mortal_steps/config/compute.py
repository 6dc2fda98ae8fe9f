"""`[compute]`: where workers run."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from mortal_steps.config.field_metadata import NO_NUMBERS, Decides
from mortal_steps.config.gpus import gpu_count, modal_gpu, most_per_container
from mortal_steps.config.section import LocalPath, Section
from mortal_steps.errors import ConfigError
from mortal_steps.places.table import PLACES, PlaceKind, PlaceName

REWARD_CPU = 1.0
"""Cores that a container for rewards reserves on Modal."""


class RoleConfig(Section):
    """How the local processes of one role are started."""

    python: Annotated[LocalPath | None, NO_NUMBERS] = None
    """Path of the Python interpreter; MORTAL must be installed in it. Default: the interpreter that
    runs the flow."""
    threads: int | None = Field(None, ge=1)
    """OMP_NUM_THREADS of each process. The number of threads decides how matrix kernels round, so
    it is part of what decides a run's bits. Default: 1; for the actor, when generation does not
    overlap training (`rollout.staleness = 0`) and the model has more than a million parameters, the
    number of cores of the machine on which the run begins, up to 4."""
    devices: Annotated[tuple[str, ...], NO_NUMBERS] = ()
    """Values of CUDA_VISIBLE_DEVICES, assigned to the role's processes in turn. Default, on a
    machine with several GPUs: the first one for the actor, and the others for the rollout workers;
    otherwise the environment's value is kept."""
    env: Annotated[dict[str, str], NO_NUMBERS] = Field(default_factory=dict)
    """Additional environment variables. Reward functions see all of these, credentials too; of the
    environment's own credentials, they see those that `rewards.credentials` names."""

    @field_validator("env")
    @classmethod
    def _can_be_set(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(
                    f"{name!r} = {value!r} cannot be an environment variable: a name has no '=', "
                    "and neither holds a NUL character"
                )
        return env


class LocalConfig(Section):
    """`[compute.local]`: worker processes on this machine."""

    actor: RoleConfig = RoleConfig()
    rollout: RoleConfig = RoleConfig()
    reward: Annotated[RoleConfig, NO_NUMBERS] = RoleConfig()


class ModalEnvironmentConfig(Section):
    """`[compute.modal.environment]`: environments in Modal Sandboxes, one for each rollout worker.

    Without this table, they run in the rollout workers' containers."""

    image: str | None = None
    """Image from a registry, with Python 3.11 or newer as `python3`, and pip. Default: a plain
    Debian with the Python version of the rollout workers."""
    packages: tuple[str, ...] = ()
    """What pip installs in it, such as `verifiers==0.4.0`, beside what MORTAL and the `type` of the
    environment need."""
    server: tuple[str, ...] = ()
    """Program with arguments that runs in each Sandbox beside the environments, such as the server
    of OpenEnv that the image is made for."""
    cpu: float = Field(2.0, ge=0.125)
    """Physical cores that each Sandbox reserves."""
    memory_mb: int = Field(2048, ge=128)
    """Memory that each Sandbox reserves, in MiB."""


class ModalConfig(Section):
    """`[compute.modal]`: GPUs per role (`A100-80GB`, or `A100-80GB:2` for two), what else their
    containers have, and what is deployed."""

    actor: str = "A100-80GB"
    """GPU of the actor's container. For `A100`, Modal gives one of 40 or of 80 GB. With more
    `training.ranks` than `H100:8` has GPUs, the actor is in several such containers."""
    actor_cpu: float = Field(8.0, ge=0.125)
    """Physical cores that the actor's container reserves."""
    actor_memory_mb: int = Field(16384, ge=128)
    """Memory that the actor's container reserves, in MiB; it may use more where the machine has it.
    The model passes through it in float32 when it is loaded, published and saved: 16 GiB suffice up
    to about 1.5 billion parameters, 7 billion take 65536."""
    rollout: str = "A10G"
    """GPU of each rollout worker's container."""
    rollout_cpu: float = Field(4.0, ge=0.125)
    """Physical cores that each rollout worker's container reserves."""
    rollout_memory_mb: int = Field(16384, ge=128)
    """Memory that each rollout worker's container reserves, in MiB. 7 billion parameters take
    65536."""
    region: str | None = None
    """Region for all of the run's containers, such as `us-east`; Modal's documentation lists them,
    and charges more for a choice. Default: Modal's choice, which may put the containers of a run
    into different clouds, so that each version of the weights travels between them."""
    rewards: Literal["flow", "modal"] = "flow"
    """Where rewards run: beside the flow, or in a container. That container receives the Python
    files below the folder in which the run begins, and the folders of reward models.
    `rewards.dry_run` calls rewards on the local machine, except for reward models on a GPU."""
    environment: ModalEnvironmentConfig | None = None
    """Sandboxes for environments. Default: they run in the rollout workers' containers."""
    reward_gpu: str | None = None
    """GPU of the container for rewards, for reward models with `device = "cuda"`. Default: none."""
    reward_memory_mb: int = Field(1024, ge=128)
    """Memory that the container for rewards is given, in MiB. A reward model needs about the size
    of its weights, and half as much again."""
    app: str = "mortal"
    """Name of the Modal app that `mortal deploy` deploys."""
    volume: str = "mortal-runs"
    """Modal Volume that holds the run directories. `mortal deploy CONFIG` creates it and attaches
    it to `app`. An app has exactly one Volume, so a different Volume needs a different app."""
    secrets: tuple[str, ...] = ()
    """Modal secrets to expose to the workers as environment variables, for example HF_TOKEN."""
    call_timeout_s: float = Field(7200.0, gt=0)
    """Longest time that one worker call may take, in seconds, including the wait for a GPU."""
    scaledown_window_s: int = Field(300, ge=2, le=3600)
    """Seconds that an idle container is kept, and billed, while the run is in progress."""
    max_cost: float | None = Field(None, gt=0)
    """Budget in dollars. When a run's own estimate of its cost, judges included, reaches this, the
    run saves its state and stops. On this machine, only judges cost something."""
    rates: dict[str, float] = Field(default_factory=dict)
    """Dollars per second for one GPU, by GPU name, if your prices differ from the list prices."""
    gpu: str = "A100-80GB"
    """GPU of the single container in single-node mode. The container reserves the cores of the role
    that has more, and the memory of both."""
    vllm_mode: Annotated[Literal["colocate", "server"], Decides("vllm_mode")] = "colocate"
    """In single-node mode: `colocate` makes the rollout worker share the actor's GPU; `server`
    gives it the last of several GPUs to itself (`gpu = "A100-80GB:2"`)."""

    @field_validator("actor", "rollout", "gpu", "reward_gpu")
    @classmethod
    def _modal_rents_it(cls, gpu: str | None) -> str | None:
        if gpu is not None:
            modal_gpu(gpu)
        return gpu

    @field_validator("rates")
    @classmethod
    def _rates_are_of_one_gpu(cls, rates: dict[str, float]) -> dict[str, float]:
        for gpu, rate in rates.items():
            if ":" in modal_gpu(gpu) or not 0 <= rate < math.inf:
                raise ValueError(f"{gpu!r}: {rate:g} is no price per second of one GPU")
        return rates

    @field_validator("vllm_mode", mode="before")
    @classmethod
    def _as_it_was_once_spelt(cls, mode: Any) -> Any:
        return "server" if mode == "serve" else mode

    @model_validator(mode="after")
    def _serving_takes_two(self) -> Self:
        if self.vllm_mode == "server" and gpu_count(self.gpu) < 2:
            raise ValueError(
                "vllm_mode = 'server' gives the rollout worker a GPU of its own; set gpu = "
                f"'{self.gpu}:2', or vllm_mode = 'colocate'"
            )
        return self


class RayConfig(Section):
    """`[compute.ray]`: the actor and the rollout workers on the nodes of a Ray cluster. The run
    directory, the working directory, local models and interpreters have the same paths on each."""

    address: str = "auto"
    """`host:port` of the cluster's head. `auto`: the cluster that `ray start` has joined this
    machine to, or that RAY_ADDRESS names. This machine must be a node of it."""
    actor: str | None = None
    """Kind of GPU that trains, by Ray's name for it: `H100`; `ray status -v` lists them as
    `accelerator_type:H100`. The actor takes `training.ranks` of them on one node. Default: it
    trains on a CPU."""
    rollout: str | None = None
    """Kind of GPU that samples; each rollout worker takes as many as its engine computes on.
    Default: they sample on CPUs."""
    python: LocalPath | None = None
    """Path of an interpreter on this machine that has Ray. Default: the one that runs the flow."""
    wait_s: float = Field(600.0, gt=0)
    """Seconds to wait for the cluster's head, or for a node with free resources, before the run
    stops."""
    call_timeout_s: float = Field(7200.0, gt=0)
    """Longest time that one worker call may take, in seconds; then its worker is replaced."""

    @field_validator("address")
    @classmethod
    def _ray_can_join_it(cls, address: str) -> str:
        host, _, port = address.rpartition(":")
        if address != "auto" and ("/" in host or not (host and port.isdecimal())):
            raise ValueError(
                f"{address!r} is not the address of a cluster's head; write it as host:port, such "
                "as '10.0.0.1:6379', or 'auto' for the cluster that this machine has joined"
            )
        return address


class ComputeConfig(Section):
    """`[compute]`: where workers run."""

    backend: Annotated[PlaceName, NO_NUMBERS] = "local"
    """Where workers run: as processes on this machine (`local`), in containers on Modal (`modal`),
    on the nodes of a Ray cluster (`ray`), or at a place of your own, written as
    `file.py:Class` or `module:Class`."""
    mode: Annotated[Literal["distributed", "single_node"], NO_NUMBERS] = "distributed"
    """`distributed`: the actor and the rollout workers run separately. `single_node`: the actor and
    one rollout worker take turns on one machine."""
    local: LocalConfig = LocalConfig()
    modal: Annotated[ModalConfig, NO_NUMBERS] = ModalConfig()
    ray: Annotated[RayConfig, NO_NUMBERS] = RayConfig()

    @model_validator(mode="after")
    def _has_one_machine_for_both(self) -> Self:
        if self.mode == "single_node" and not self.place.takes_turns:
            raise ValueError(
                "compute.mode = 'single_node' has actor and rollout worker take turns on one GPU, "
                f"and compute.backend = {self.backend!r} gives each GPUs of its own; leave it out"
            )
        return self

    def check_mode(self) -> None:
        """Raise `ConfigError` for a GPU on Modal that is named for the other mode: whoever names
        one means to get it. A run's own file is not asked, since it names the defaults of the
        version that wrote it."""
        default = ModalConfig()
        others, own = {
            "distributed": (("gpu", "vllm_mode"), "compute.modal.actor and rollout"),
            "single_node": (("actor", "rollout"), "compute.modal.gpu"),
        }[self.mode]
        for option in others:
            if getattr(self.modal, option) != getattr(default, option):
                raise ConfigError(
                    f"compute.modal.{option} does nothing where compute.mode is {self.mode!r}; "
                    f"set {own}"
                )

    @property
    def place(self) -> PlaceKind:
        """What is known of the place before it is imported."""
        return PLACES.entry(self.backend)

    @property
    def volume(self) -> str | None:
        """Modal Volume that holds the run directory; None: this machine does."""
        return None if self.place.shares_files else self.modal.volume

    @property
    def scores_in_a_container(self) -> bool:
        """Whether rewards run in a container of their own, on Modal."""
        return self.volume is not None and self.modal.rewards != "flow"

    @property
    def away_from_rollouts(self) -> ModalConfig | None:
        """What says where environments run that are in Modal Sandboxes."""
        is_away = self.volume is not None and self.modal.environment is not None
        return self.modal if is_away else None

    def actor_containers(self, ranks: int) -> int:
        """Containers on Modal that an actor of so many ranks is in: several if it has more ranks
        than one holds GPUs, and takes whole ones."""
        most = most_per_container(self.modal.actor)
        is_spread = self.mode == "distributed" and gpu_count(self.modal.actor) == most < ranks
        return -(-ranks // most) if is_spread else 1

    def gpu_of(self, role: str) -> str | None:
        """GPU of the container on Modal that a role's worker is in, if it has one."""
        if role == "reward":
            return self.modal.reward_gpu
        if self.mode == "single_node":
            return self.modal.gpu
        return {"actor": self.modal.actor, "rollout": self.modal.rollout}[role]

    def cpu_of(self, role: str) -> float:
        """Cores that the container on Modal reserves that a role's worker is in."""
        if role == "reward":
            return REWARD_CPU
        cores = {"actor": self.modal.actor_cpu, "rollout": self.modal.rollout_cpu}
        return max(cores.values()) if self.mode == "single_node" else cores[role]

    def memory_mb_of(self, role: str) -> int:
        """Memory that it reserves, in MiB."""
        if role == "reward":
            return self.modal.reward_memory_mb
        memory = {"actor": self.modal.actor_memory_mb, "rollout": self.modal.rollout_memory_mb}
        return sum(memory.values()) if self.mode == "single_node" else memory[role]
