"""`mortal atropos` in each of its modes, so that a tiny model learns."""

STEPS = 24
FLAGS = (
    *("--training-steps", STEPS, "--batch-size", 16, "--gradient-accumulation-steps", 4),
    *("--seq-len", 32, "--vllm-restart-interval", 1, "--benchmark"),
    *("--set", "rollout.max_tokens=8", "--set", "training.gradient_checkpointing=false"),
    *("--set", "compute.local.actor.threads=1"),
)
WHOLE = ("--lr", 3e-4)
LINEAR = "q_proj k_proj v_proj o_proj up_proj gate_proj down_proj"
ADAPTER = ("--lr", 1e-3, "--lora-dropout", 0, "--lora-target-modules", LINEAR)
MODES = {"none": WHOLE, "shared_vllm": WHOLE, "lora_only": ADAPTER}


def arguments(url, port, run_id, mode, engine=("--engine", "transformers")):
    """Return the arguments of the command for the model in the folder `model`."""
    flags = [
        *("--model-name", "model", "--atropos-url", url, "--vllm-port", port),
        *("--save-path", "runs", "--run-id", run_id, "--weight-bridge-mode", mode),
        *FLAGS,
        *MODES[mode],
        *engine,
    ]
    return ["atropos", *map(str, flags)]
