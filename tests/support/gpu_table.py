"""The table of docs/gpu.md: which models fit on GPUs with 80 GB, and what a step may take there."""

import tomllib

from mortal_steps.config.gpus import GIB
from mortal_steps.orchestration.checking.forecast import forecast
from mortal_steps.orchestration.checking.forecast_lines import lines_of
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults
from mortal_steps.orchestration.trials.opening import forecast_plan
from mortal_steps.plan.run_config import RunConfig
from tests.support.gpu_setups import PROMPT
from tests.support.made_up_gpus import SHAPES, let_there_be, several

H100 = ("NVIDIA H100 80GB HBM3", 79.2)
FLOPS, BANDWIDTH = 989e12, 3.35e12
"""Of an H100, a second: in bfloat16, and bytes of its memory."""
COMPUTES, READS = 0.4, 0.5
"""Parts of these that training and sampling are assumed to reach."""
BATCH_SIZE, NUM_GENERATIONS, LONGEST = 32, 8, 1024

ADAPTER = ("model.dtype = 'bfloat16'", "training.use_lora = true")
SLEEPS = ("rollout.sleep_while_training = true",)


def ranks(count):
    return (f"training.ranks = {count}", "training.sharding = 'full'")


def engine(**options):
    return tuple(f"rollout.engine_options.{name} = {value}" for name, value in options.items())


RAY = ("compute.backend = 'ray'", "compute.ray.actor = 'H100'", "compute.ray.rollout = 'H100'")


def cluster(workers, **options):
    """Two machines with 8 GPUs each: one trains, the other samples."""
    return (*RAY, *ranks(8), f"rollout.num_rollout_workers = {workers}", *engine(**options))


FITS = [
    ("0.5B", 1, ()),
    ("0.5B", 2, ()),
    ("0.5B", 8, ()),
    ("1.5B", 1, ()),
    ("1.5B", 2, ()),
    ("1.5B", 8, ("training.ranks = 2",)),
    ("3B", 1, SLEEPS),
    ("3B", 2, ()),
    ("3B", 8, ("training.ranks = 4",)),
    ("7B", 1, (*ADAPTER, *engine(gpu_memory_utilization=0.5))),
    ("7B", 2, (*ranks(2), *engine(tensor_parallel_size=2), *SLEEPS)),
    ("7B", 8, ranks(4)),
    ("7B", 16, cluster(8)),
    ("14B", 1, (*ADAPTER, *engine(gpu_memory_utilization=0.5, max_num_seqs=48), *SLEEPS)),
    ("14B", 2, (*ADAPTER, *engine(max_num_seqs=192))),
    ("14B", 8, (*ranks(4), *engine(tensor_parallel_size=2))),
    ("14B", 16, cluster(4, tensor_parallel_size=2)),
    (
        "32B",
        2,
        (*ADAPTER, "training.gradient_accumulation_steps = 64", *engine(max_num_seqs=32)),
    ),
    (
        "32B",
        8,
        (
            *ranks(8),
            "training.gradient_accumulation_steps = 32",
            *engine(tensor_parallel_size=8),
            *SLEEPS,
        ),
    ),
    (
        "32B",
        16,
        (
            *cluster(2, tensor_parallel_size=4),
            "training.gradient_accumulation_steps = 32",
        ),
    ),
    ("72B", 8, (*ADAPTER, *ranks(4), *engine(tensor_parallel_size=4))),
    ("72B", 16, (*ADAPTER, *cluster(2, tensor_parallel_size=4))),
]
"""Sizes of Qwen2.5, numbers of GPUs, and settings with which a dry run warns of nothing."""


def rows(monkeypatch):
    """Return the table's rows."""
    return [_row(monkeypatch, *each) for each in FITS]


def _row(monkeypatch, size, count, settings):
    let_there_be(monkeypatch, several(count, *H100))
    monkeypatch.chdir(SHAPES)
    values = tomllib.loads(
        f"""
        model.name_or_path = "Qwen2.5-{size}-Instruct"
        rollout.engine = "vllm"
        training.batch_size = {BATCH_SIZE}
        training.num_generations = {NUM_GENERATIONS}
        """
        + "\n".join(settings)
    )
    found = forecast(forecast_plan(resolve_defaults(RunConfig.model_validate(values))), PROMPT)
    assert not [line for line in lines_of(found) if line.startswith("warning")]
    fullest = max(card.most for card in found.cards() if card.training) / GIB
    shown = "<br>".join(f"`{each.partition('.')[2]}`" for each in settings if each not in RAY)
    shown = shown.replace("'", '"')
    return (
        f"| {size} | {count} | {shown or 'the defaults'} | {fullest:.0f} "
        f"| {_training(found):.0f} | {_sampling(found):.0f} |"
    )


def _training(found):
    """Seconds: twice the parameters a token for each of forward, forward again with checkpointing,
    gradients of what goes in and, unless they are frozen, of weights."""
    training = found.plan.trainer.training
    passes = 3 if training.use_lora else 4
    tokens = BATCH_SIZE * NUM_GENERATIONS * (PROMPT + LONGEST)
    flops = passes * 2 * found.shape.parameters * tokens
    return flops / (COMPUTES * FLOPS * training.ranks)


def _sampling(found):
    """Seconds: for each token, an engine reads its weights, and keys and values of sequences of
    half the length."""
    options, shape = found.plan.trainer.rollout.engine_options, found.shape
    engines = found.placement.engines
    at_once = BATCH_SIZE * NUM_GENERATIONS // len(engines)
    together = min(at_once, options.get("max_num_seqs", at_once))
    cached = 2 * 2 * shape.layers * shape.keys * (PROMPT + LONGEST / 2)
    read = (2 * shape.parameters + together * cached) / len(engines[0])
    return -(-at_once // together) * LONGEST * read / (READS * BANDWIDTH)
