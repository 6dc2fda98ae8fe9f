"""The loads, in the order of what they prove: each is what a machine can do in ten minutes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.gpu_check import (
    attention,
    exchange,
    killed,
    ranks,
    rates,
    repeats,
    steps,
    syncing,
    trained,
)
from benchmarks.gpu_check.checked import Checked, Options
from mortal_steps.rollout.weight_sync.table import WEIGHT_SYNC

Check = Callable[[Path, Options], Iterator[Checked]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some checks, in a folder of their own."""

    name: str
    minutes: float
    """At most, counted from the end of the minutes of the part before it: what a part leaves is for
    the ones after it."""
    check: Check


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Parts of less than ten minutes together."""

    name: str
    parts: tuple[Part, ...]


def _exchange(folder: Path, options: Options) -> Iterator[Checked]:
    dtype = "bfloat16" if options.is_gpu else "float32"
    return exchange.check("versions", folder, options, options.size, dtype, list(WEIGHT_SYNC))


def _large(folder: Path, options: Options) -> Iterator[Checked]:
    size = 0.01 if options.tiny else 7.6
    return exchange.check("large", folder, options, size, "bfloat16", ["volume", "direct"])


LOADS: Mapping[int, Load] = {
    1: Load(
        name="a trained model",
        parts=(
            Part(name="rates", minutes=0.8, check=rates.check),
            Part(name="model", minutes=0.5, check=trained.check_model),
            Part(name="memory", minutes=0.9, check=trained.check_memory),
            Part(name="bfloat16", minutes=3.7, check=partial(trained.check, trained.BFLOAT16)),
            Part(name="float32", minutes=3.2, check=partial(trained.check, "float32")),
            Part(name="again", minutes=0.4, check=trained.check_again),
        ),
    ),
    2: Load(
        name="sampling with vLLM",
        parts=(
            Part(name="sampling", minutes=4.0, check=repeats.check_eager),
            Part(name="syncing", minutes=3.0, check=syncing.check),
            Part(name="versions", minutes=2.5, check=_exchange),
        ),
    ),
    3: Load(
        name="a killed run with vLLM",
        parts=(
            Part(name="killed", minutes=6.5, check=killed.check),
            Part(name="prefix cache", minutes=3.0, check=repeats.check_prefix_cache),
        ),
    ),
    4: Load(
        name="train steps of 1.5 billion parameters",
        parts=(
            Part(name="steps", minutes=8.0, check=steps.check),
            Part(name="attention", minutes=1.5, check=attention.check),
        ),
    ),
    5: Load(
        name="versions of 7.6 billion parameters",
        parts=(Part(name="large", minutes=9.5, check=_large),),
    ),
    6: Load(
        name="vLLM compiled, and with adapters",
        parts=(Part(name="compiled", minutes=9.5, check=repeats.check_compiled),),
    ),
    7: Load(
        name="several GPUs",
        parts=(Part(name="ranks", minutes=9.5, check=ranks.check),),
    ),
}
