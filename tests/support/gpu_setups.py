"""The machines of docs/gpu.md, what is trained on them, and what a dry run shows."""

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.resolve_defaults import resolve_defaults
from mortal_steps.orchestration.room_on_gpus import check_room
from tests.support.made_up_gpus import SHAPES, let_there_be, several

SMALL, LARGE = "Qwen2.5-0.5B-Instruct", "Qwen2.5-7B-Instruct"
RTX, A100 = ("NVIDIA GeForce RTX 4090", 23.5), ("NVIDIA A100-SXM4-80GB", 79.2)
ON_MODAL = {"backend": "modal", "modal": {"actor": "A100-80GB", "rollout": "A10G"}}

SETUPS = {
    "One GPU with 24 GB": (several(1, *RTX), {}),
    "Two GPUs with 24 GB": (several(2, *RTX), {}),
    "An A100 and two A10G on Modal": ([], {"compute": ON_MODAL}),
    "7B without LoRA on one GPU with 80 GB": (
        several(1, *A100),
        {"model": {"name_or_path": LARGE}},
    ),
}
"""GPUs, and the settings beside the defaults."""


def shown(name, monkeypatch):
    """What a dry run shows of a set-up, or the error that it ends with."""
    gpus, changes = SETUPS[name]
    let_there_be(monkeypatch, gpus)
    monkeypatch.chdir(SHAPES)  # the folders of the models
    values = {"model": {"name_or_path": SMALL}, "rollout": {"engine": "vllm"}} | changes
    config = resolve_defaults(RunConfig.model_validate(values))
    lines: list[str] = []
    try:
        check_room(config, show=lines.append)
    except ConfigError as error:
        lines.append(f"error: {error}")
    return "".join(f"{line}\n" for line in lines)
