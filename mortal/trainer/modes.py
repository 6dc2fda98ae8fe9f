"""The modes of a run: whether its workers share one node or run separately."""

from dataclasses import dataclass
from typing import Any, Literal

from mortal_steps.config.gpus import gpu_count, modal_gpu
from mortal_steps.errors import ConfigError
from mortal_steps.places.table import PLACES
from mortal_steps.plan.run_config import ROLLOUT_WORKERS


@dataclass(frozen=True)
class GPUConfig:
    """The GPUs of one container on Modal, such as `GPUConfig("A100-80GB", count=2)`. Raises
    `ConfigError` for those that Modal does not offer in one."""

    gpu_type: str
    """Modal's name of the GPU, such as `A100-80GB`."""
    count: int = 1
    """Number of GPUs."""

    def __post_init__(self) -> None:
        _checked(self.gpu_type, "GPUConfig")
        if type(self.count) is not int or ":" in self.gpu_type:
            raise ConfigError(
                f"GPUConfig({self.gpu_type!r}, count={self.count!r}): write "
                "GPUConfig('A100-80GB', count=2)"
            )
        _checked(self.name, "GPUConfig")

    @property
    def name(self) -> str:
        """The name in the configuration: `A100-80GB`, or `A100-80GB:2`."""
        return self.gpu_type if self.count == 1 else f"{self.gpu_type}:{self.count}"


GPU = str | GPUConfig
"""`"A100-80GB"`, `"A100-80GB:2"` or a `GPUConfig`."""


@dataclass(frozen=True)
class SingleNode:
    """The actor and one rollout worker take turns on one node."""

    gpu: GPU = "A100-80GB"
    """GPU of the one container on Modal."""
    use_vllm: bool = False
    """Sample with vLLM; otherwise with transformers."""
    vllm_mode: Literal["colocate", "serve"] = "colocate"
    """`colocate`: vLLM shares the GPU with the actor. `serve`: vLLM has the last of several GPUs to
    itself. It has no effect without `use_vllm`."""

    def __post_init__(self) -> None:
        name = _checked(_name(self.gpu), "SingleNode(gpu=...)")
        if self.vllm_mode not in ("colocate", "serve"):
            raise ConfigError(
                f"SingleNode(vllm_mode={self.vllm_mode!r}): write 'colocate' or 'serve'"
            )
        if self.use_vllm and self.vllm_mode == "serve" and gpu_count(name) < 2:
            raise ConfigError(
                "SingleNode(vllm_mode='serve') gives vLLM a GPU of its own, but "
                f"gpu={_name(self.gpu)!r} is a single GPU; write gpu=GPUConfig({name!r}, count=2)"
            )

    def settings(self) -> dict[str, Any]:
        serves = self.use_vllm and self.vllm_mode == "serve"
        return {
            "compute.mode": "single_node",
            "compute.modal.gpu": _name(self.gpu),
            "compute.modal.vllm_mode": "server" if serves else "colocate",
            "rollout.engine": "vllm" if self.use_vllm else "transformers",
        }

    def containers(self) -> str:
        """Return what it takes on Modal, in words."""
        return f"one container with {_name(self.gpu)}"


@dataclass(frozen=True)
class Distributed:
    """The actor and the rollout workers run apart from each other."""

    actor: GPU = "A100-80GB"
    """GPU of the actor's container on Modal."""
    rollout: GPU = "A10G"
    """GPU of each rollout worker's container on Modal."""
    num_rollout_workers: int | None = None
    """Number of processes, or of containers on Modal, that sample. None: two on Modal; on this
    machine, see `rollout.num_rollout_workers`."""
    weight_sync_method: str | None = None
    """How rollout workers receive new weights: `reload`, `volume` or `checkpoint`; `direct`, which
    works on this machine only; or a method of your own as `module:name`. None: see
    `rollout.weight_sync`."""
    sync_weights_every: int = 1
    """Number of steps after which the rollout workers receive new weights."""

    def __post_init__(self) -> None:
        _checked(_name(self.actor), "Distributed(actor=...)")
        _checked(_name(self.rollout), "Distributed(rollout=...)")

    def settings(self) -> dict[str, Any]:
        return {
            "compute.mode": "distributed",
            "compute.modal.actor": _name(self.actor),
            "compute.modal.rollout": _name(self.rollout),
            "rollout.num_rollout_workers": self.num_rollout_workers,
            "rollout.weight_sync": self.weight_sync_method,
            "rollout.sync_weights_every": self.sync_weights_every,
        }

    def containers(self) -> str:
        """Return what it takes on Modal, in words."""
        workers = self.num_rollout_workers or ROLLOUT_WORKERS
        return f"the actor on {_name(self.actor)} and {workers} x {_name(self.rollout)}"


Mode = SingleNode | Distributed


def usual_mode(backend: str, *, use_vllm: bool = False) -> Mode:
    """Return the mode of a script that names none: one node, where workers can take turns there."""
    place = PLACES.get(backend)
    takes_turns = place is not None and place.takes_turns
    return SingleNode(use_vllm=use_vllm) if takes_turns else Distributed()


def _name(gpu: GPU) -> str:
    return gpu.name if isinstance(gpu, GPUConfig) else gpu


def _checked(name: str, called: str) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{called}: {name!r}: write a GPU's name, such as 'L4' or 'L4:2'")
    try:
        return modal_gpu(name)
    except ValueError as error:
        raise ConfigError(f"{called}: {error}") from None
