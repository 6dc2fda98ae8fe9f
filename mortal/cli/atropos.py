"""`atropos`: a trainer for Atropos' environments, with the options of their example trainer."""

import time
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mortal.cli.arguments import Overrides, port_number
from mortal.terminal.output import checking, say

training_option = partial(typer.Option, rich_help_panel="Training")
endpoint_option = partial(typer.Option, rich_help_panel="The policy's endpoint")
lora_option = partial(typer.Option, rich_help_panel="LoRA")
log_option = partial(typer.Option, rich_help_panel="Logs")
"""Options of each panel of the help."""


class Bridge(StrEnum):
    """How the environments' endpoint gets new weights."""

    NONE = "none"
    SHARED = "shared_vllm"
    LORA = "lora_only"


def atropos(
    model_name: Annotated[
        str, typer.Option(metavar="MODEL", help="Model on the hub, or a local folder.")
    ],
    atropos_url: Annotated[
        str, typer.Option(metavar="URL", help="Address of Atropos' API server (run-api).")
    ] = "http://localhost:8000",
    weight_bridge_mode: Annotated[
        Bridge,
        typer.Option(
            metavar="MODE",
            help="How the endpoint gets new weights. none: a new engine starts with them; "
            "shared_vllm: the engine reads them from shared memory; lora_only: only an adapter is "
            "trained, and loaded beside the base model under a name of its own.",
        ),
    ] = Bridge.NONE,
    lr: Annotated[float, training_option(metavar="RATE", help="Learning rate, constant.")] = 1e-5,
    training_steps: Annotated[int, training_option(metavar="N", help="Optimizer steps.")] = 10,
    batch_size: Annotated[
        int, training_option(metavar="N", help="Sequences of a micro-batch.")
    ] = 2,
    gradient_accumulation_steps: Annotated[
        int,
        training_option(
            metavar="N",
            help="Micro-batches of an optimizer step, which is made on one batch of the API.",
        ),
    ] = 32,
    seq_len: Annotated[int, training_option(metavar="N", help="Most tokens of a sequence.")] = 2048,
    clip_eps: Annotated[
        float, training_option(metavar="RANGE", help="Clipping range of the ratio.")
    ] = 0.2,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE", help="cuda:N, the GPU of the actor. Default: the first, or the CPU."
        ),
    ] = None,
    save_path: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder that holds the run.")
    ] = Path("trained_model_checkpoints"),
    checkpoint_interval: Annotated[
        int, training_option(metavar="N", help="Steps between checkpoints.")
    ] = 3,
    vllm_port: Annotated[
        str,
        endpoint_option(
            parser=port_number,
            metavar="PORT",
            help="Port at which environments sample from the policy.",
        ),
    ] = "9001",
    vllm_restart_interval: Annotated[
        int, endpoint_option(metavar="N", help="Steps between new weights.")
    ] = 3,
    vllm_gpu_memory_utilization: Annotated[
        float, endpoint_option(metavar="SHARE", help="Share of the GPU's memory for vLLM.")
    ] = 0.45,
    vllm_config_path: Annotated[
        Path | None, endpoint_option(metavar="FILE", help="Not needed: the run starts the engine.")
    ] = None,
    single_copy: Annotated[
        bool, endpoint_option("--single-copy", help="The same as --weight-bridge-mode shared_vllm.")
    ] = False,
    engine: Annotated[
        str | None,
        endpoint_option(
            metavar="ENGINE", help="vllm or transformers. Default: vllm if it is installed."
        ),
    ] = None,
    vllm_python: Annotated[
        str | None,
        endpoint_option(metavar="PATH", help="Interpreter that has vLLM, if it is another one."),
    ] = None,
    lora_r: Annotated[int, lora_option(metavar="N", help="Rank.")] = 16,
    lora_alpha: Annotated[int, lora_option(metavar="N", help="Scaling.")] = 32,
    lora_dropout: Annotated[float, lora_option(metavar="P", help="Dropout.")] = 0.05,
    lora_target_modules: Annotated[
        str, lora_option(metavar="NAMES", help="Layers, separated by spaces.")
    ] = "q_proj v_proj",
    use_wandb: Annotated[bool, log_option("--use-wandb", help="Log to Weights & Biases.")] = False,
    wandb_project: Annotated[str | None, log_option(metavar="NAME", help="Its project.")] = None,
    wandb_group: Annotated[str | None, log_option(metavar="NAME", help="Its group.")] = None,
    benchmark: Annotated[bool, log_option("--benchmark", help="At the end, print times.")] = False,
    debug_loading: Annotated[
        bool, log_option("--debug-loading", help="Print where the log of the loading is.")
    ] = False,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Id of the run; that of an existing run continues it."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Train on what the environments of an Atropos API server sample and score.

    Start `run-api` and the environments of atroposlib yourself, in any order; the environments
    sample from this command, with --openai.server_type vllm and --openai.base_url
    http://localhost:9001/v1. A run that ends early is continued by `mortal resume RUN --runs-dir
    trained_model_checkpoints`.
    """
    bridge = Bridge.SHARED if single_copy else weight_bridge_mode
    if vllm_config_path is not None:
        say("--vllm-config-path is not needed: the run starts the engine that it gives weights to")
    values: dict[str, Any] = {
        "runs_dir": str(save_path),
        "model": {"name_or_path": model_name, "max_model_len": seq_len},
        "rollout": {
            "source": "atropos",
            "source_options": _given(
                url=atropos_url,
                seq_len=seq_len,
                port=int(vllm_port),
                wandb_project=(wandb_project or "mortal") if use_wandb else None,
                wandb_group=wandb_group,
            ),
            "num_rollout_workers": 1,
            "sync_weights_every": vllm_restart_interval,
            **_given(engine=engine, weight_sync=WEIGHT_SYNC[bridge]),
        },
        "algorithm": {"type": "atropos", "clip_eps": clip_eps},
        "training": {
            **_rows(batch_size, gradient_accumulation_steps),
            "learning_rate": lr,
            "max_steps": training_steps,
            "use_lora": bridge is Bridge.LORA,
            "lora": {
                "r": lora_r,
                "alpha": lora_alpha,
                "dropout": lora_dropout,
                "target_modules": lora_target_modules.split(),
            },
            "trl": {"lr_scheduler_type": "constant"},
        },
        "checkpoints": {"save_steps": checkpoint_interval},
        "logging": _given(
            report_to=["wandb"] if use_wandb else None, project=wandb_project, group=wandb_group
        ),
        "compute": {
            "local": {
                "actor": _given(devices=_devices(device)),
                "rollout": _given(python=vllm_python),
            }
        },
    }
    if bridge is not Bridge.LORA:
        del values["training"]["lora"]
    _run(
        values,
        run_id,
        overrides or (),
        memory=vllm_gpu_memory_utilization,
        benchmark=bridge.value if benchmark else None,
        debug_loading=debug_loading,
    )


WEIGHT_SYNC = {Bridge.NONE: "checkpoint", Bridge.SHARED: "direct", Bridge.LORA: None}
"""`rollout.weight_sync` of each way; an adapter is loaded as the engine loads adapters."""


def _run(
    values: dict[str, Any],
    run_id: str | None,
    overrides: Sequence[str],
    *,
    memory: float,
    benchmark: str | None,
    debug_loading: bool,
) -> None:
    checking("reading the options")
    from mortal.driver import drive
    from mortal_steps.plan.loader import apply_override, parse_config
    from mortal_steps.runs.run import find_run, new_run_id
    from mortal_steps.system.gpus import has_gpu

    if has_gpu() and values["rollout"].get("engine") != "transformers":
        values["rollout"]["engine_options"] = {"gpu_memory_utilization": memory}
    for override in overrides:
        apply_override(values, override)
    settings = parse_config(values, origin="the command line")
    run_id = run_id or settings.run_id or new_run_id(settings.id_prefix)
    settings = settings.model_copy(update={"run_id": run_id})
    runs_dir = Path(settings.runs_dir)
    if debug_loading:
        logs = runs_dir / run_id / "logs"
        say(f"what loading comes to is in {logs}/actor-0.log and {logs}/rollout-0.log")
    began = time.monotonic()
    drive(settings)
    if benchmark is not None:
        # Imported where used: reads a run.
        from mortal.terminal.bridge_times import summary

        for line in summary(find_run(runs_dir, run_id), benchmark, began):
            say(line)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _rows(batch_size: int, accumulation: int) -> dict[str, int]:
    """Return the keys of `[training]` for a batch of this size. Groups may have any size, so that
    the least number of completions per prompt stands for theirs."""
    rows = batch_size * accumulation
    if rows < 2:
        raise typer.BadParameter(
            f"--batch-size x --gradient-accumulation-steps = {rows}; a step takes 2 sequences or "
            "more"
        )
    least = next(number for number in range(2, rows + 1) if rows % number == 0)
    return {
        "batch_size": rows // least,
        "num_generations": least,
        "gradient_accumulation_steps": accumulation,
    }


def _devices(device: str | None) -> list[str] | None:
    if device is None or device == "cuda":
        return None
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number.isdecimal():
        raise typer.BadParameter(
            f"--device {device}: name a GPU as cuda:N, or leave it out; to train on the CPU of a "
            "machine with a GPU, set CUDA_VISIBLE_DEVICES to nothing"
        )
    return [number]
