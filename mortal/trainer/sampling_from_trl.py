"""What TRL's configurations say of sampling, for the trainers that sample."""

from collections.abc import Collection, Mapping
from typing import Any

from mortal.trainer.modes import Distributed, Mode, SingleNode, usual_mode
from mortal_steps.errors import ConfigError

CALLS = "max_tool_calling_iterations"
OWN_SERVER = "the rollout workers start vLLM themselves"
OF_A_SERVER = ("vllm_server_", "vllm_group_")


def idle_in_sampling(
    found: Mapping[str, Any], values: Mapping[str, Any], chosen: Collection[str]
) -> dict[str, str]:
    """Return the chosen options that change nothing, because vLLM is off or starts by itself, or
    because there are no tools; each with the reason."""
    idle: dict[str, str] = {}
    for name in chosen:
        if not values["use_vllm"] and name.startswith("vllm_") and "sampling" not in name:
            idle[name] = "use_vllm is off"
        elif name.startswith(OF_A_SERVER):
            idle[name] = OWN_SERVER
    if CALLS in chosen and not found.get("tools") and found.get("environment_factory") is None:
        idle[CALLS] = "there are no tools"
    return idle


def mode_and_engine(
    found: Mapping[str, Any], values: Mapping[str, Any], origin: str
) -> tuple[Mode, dict[str, Any]]:
    """Return where it samples, and keys for the engine that the mode leaves open."""
    vllm, mode = values["use_vllm"], found["mode"]
    if mode is None:
        apart = vllm and values["vllm_mode"] == "server"
        mode = Distributed() if apart else usual_mode(found["backend"], use_vllm=vllm)
    if isinstance(mode, SingleNode):
        if vllm and not mode.use_vllm:
            raise ConfigError(
                f"{origin}(mode=SingleNode(...)) samples with transformers, and use_vllm is "
                "on; write SingleNode(use_vllm=True)"
            )
        return mode, {}
    return mode, {"rollout.engine": "vllm" if vllm else "transformers"}
