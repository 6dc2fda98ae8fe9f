"""What is sampled with or trained: a model of real shape with random weights, or its adapter."""

from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Options

RANK = 16


def model_in(folder: Path, options: Options, size: float | None = None) -> str:
    """Folder of the part's model, made once, of so many billion parameters if not of the size that
    is sampled with; raises `Failed`."""
    if not (folder / "model/config.json").exists():
        options.ask("models:make", folder, size=size or options.size, rank=0)
    return str(folder / "model")


def adapter_in(folder: Path, options: Options) -> str:
    """Folder of an adapter of that model; raises `Failed`."""
    model_in(folder, options)
    if not (folder / "adapter").exists():
        options.ask("models:make", folder, size=options.size, rank=RANK)
    return str(folder / "adapter")


def make(job: dict[str, Any]) -> dict[str, Any]:
    """Write the model, or an adapter of the one that is there."""
    import torch

    folder = Path(job["folder"])
    if not job["rank"]:
        from benchmarks.weights.shapes import build

        device = "cuda" if torch.cuda.is_available() else "cpu"
        build(job["size"], folder / "model", positions=4096, device=device)
        return {}
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from mortal_steps.policy.algorithms.base import AdapterBase
    from mortal_steps.policy.model_files.writing import save_adapter
    from mortal_steps.store import RunStore

    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype="float32")
    torch.manual_seed(1)
    config = LoraConfig(task_type="CAUSAL_LM", r=job["rank"], target_modules="all-linear")
    model = get_peft_model(base, config).eval()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    with RunStore(folder).committing_folder("adapter") as into:
        save_adapter(model, into, AdapterBase(name="base"))
    return {}
