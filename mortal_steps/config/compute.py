"""`[compute]`: where workers run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mortal_steps.config.section import Section


class RoleConfig(Section):
    """How the local processes of one role are started."""

    python: str | None = None
    """Interpreter; default: the one that runs the flow. MORTAL must be installed in it."""
    threads: int | None = Field(None, ge=1)
    """OMP_NUM_THREADS of the process, which matrix kernels round by: it belongs to a run's numbers.
    Default 1; of an actor that nothing runs beside (`rollout.staleness` 0), the cores of the
    machine that the run begins on, 4 at most."""
    devices: tuple[str, ...] = ()
    """CUDA_VISIBLE_DEVICES, dealt out to the role's processes in turn; empty: unchanged."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables."""


class LocalConfig(Section):
    """`[compute.local]`: worker processes on this machine."""

    actor: RoleConfig = RoleConfig()
    rollout: RoleConfig = RoleConfig()
    reward: RoleConfig = RoleConfig()


class ModalConfig(Section):
    """`[compute.modal]`: GPUs per role (`A100`, or `A100:2` for two) and single-node options."""

    actor: str = "A100"
    rollout: str = "A10G"
    gpu: str = "A100"
    """GPU of the one container in single-node mode."""
    use_vllm: bool = False
    vllm_mode: Literal["colocate", "serve"] = "colocate"


class ComputeConfig(Section):
    """`[compute]`: where workers run."""

    backend: Literal["local", "modal"] = "local"
    mode: Literal["distributed", "single_node"] = "distributed"
    """`distributed`: actor and rollout workers apart. `single_node`: TRL's own loop in one."""
    local: LocalConfig = LocalConfig()
    modal: ModalConfig = ModalConfig()
