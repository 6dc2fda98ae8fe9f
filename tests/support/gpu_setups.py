"""The machines of docs/gpu.md, what is trained on them, and what a dry run shows."""

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.forecast import forecast
from mortal_steps.orchestration.checking.forecast_lines import lines_of
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults
from mortal_steps.orchestration.trials.opening import forecast_plan
from mortal_steps.plan.run_config import RunConfig
from tests.support.made_up_gpus import SHAPES, let_there_be, several

SMALL, LARGE = "Qwen2.5-0.5B-Instruct", "Qwen2.5-7B-Instruct"
PROMPT = 150
"""Tokens of the longest prompt."""
RTX, A100 = ("NVIDIA GeForce RTX 4090", 23.5), ("NVIDIA A100-SXM4-80GB", 79.2)
ON_MODAL = {"backend": "modal", "modal": {"actor": "A100-80GB", "rollout": "A10G"}}

SETUPS = {
    "One GPU with 24 GB": (several(1, *RTX), {}),
    "One GPU with 80 GB": (several(1, *A100), {}),
    "Two GPUs with 24 GB": (several(2, *RTX), {}),
    "Eight GPUs with 80 GB": (
        several(8, "NVIDIA H100 80GB HBM3", 79.2),
        {"training": {"batch_size": 32, "num_generations": 8}},
    ),
    "An A100 and two A10G on Modal": ([], {"compute": ON_MODAL}),
    "7B with LoRA on one GPU with 80 GB": (
        several(1, *A100),
        {"model": {"name_or_path": LARGE, "dtype": "bfloat16"}, "training": {"use_lora": True}},
    ),
    "Long completions on 24 GB": (
        several(1, *RTX),
        {"training": {"max_completion_length": 4096}},
    ),
    "7B without LoRA on one GPU with 80 GB": (
        several(1, *A100),
        {"model": {"name_or_path": LARGE}},
    ),
}
"""GPUs, and the settings beside the defaults."""


def shown(name, monkeypatch):
    """Return what a dry run shows of a set-up, or the error that it ends with."""
    gpus, changes = SETUPS[name]
    let_there_be(monkeypatch, gpus)
    monkeypatch.chdir(SHAPES)  # the folders of the models
    values = {"model": {"name_or_path": SMALL}, "rollout": {"engine": "vllm"}} | changes
    config = resolve_defaults(RunConfig.model_validate(values))
    try:
        return "".join(f"{line}\n" for line in lines_of(forecast(forecast_plan(config), PROMPT)))
    except ConfigError as error:
        return f"error: {error}\n"
