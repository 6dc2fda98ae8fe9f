"""What a second of a container on Modal costs."""

from __future__ import annotations

from collections.abc import Mapping

from mortal_steps.config import ComputeConfig
from mortal_steps.config.gpus import gpu_count, modal_gpu
from mortal_steps.errors import ConfigError

DOLLARS_PER_SECOND = {
    "T4": 0.000164,
    "L4": 0.000222,
    "A10": 0.000306,
    "L40S": 0.000542,
    "A100": 0.000583,
    "A100-40GB": 0.000583,
    "A100-80GB": 0.000694,
    "H100": 0.001097,
    "H100!": 0.001097,
    "H200": 0.001261,
    "B200": 0.001736,
}
"""List prices of July 2026 of the GPUs alone. Those of an account may differ: `compute.modal.rates`
goes before them."""

CORE = 0.0000131
"""Dollars per second of a physical core that a container reserves."""
GIBIBYTE = 0.0000022
"""Dollars per second of a GiB of memory that it reserves."""


def dollars_per_second(wanted: str, rates: Mapping[str, float]) -> float:
    """What these GPUs cost; `rates` by GPU, however spelt, go before the list.

    Raises `ValueError` for a GPU without a known price.
    """
    name = modal_gpu(wanted).partition(":")[0]
    known = DOLLARS_PER_SECOND | {modal_gpu(gpu): rate for gpu, rate in rates.items()}
    rate = known.get(name)
    if rate is None:
        raise ValueError(
            f"the price of {name} is not known; set it in compute.modal.rates, in dollars per "
            "second"
        )
    return rate * gpu_count(wanted)


def container_rate(compute: ComputeConfig, role: str) -> float:
    """Dollars per second of the container of a role's worker: GPUs, cores and memory.

    Raises `ValueError` for a GPU without a known price.
    """
    gpu = compute.gpu_of(role)
    gpus = dollars_per_second(gpu, compute.modal.rates) if gpu else 0.0
    return gpus + CORE * compute.cpu_of(role) + GIBIBYTE * compute.memory_mb_of(role) / 1024


def check_prices(compute: ComputeConfig) -> None:
    """Raise `ConfigError` for a GPU of the run whose price is not known."""
    for role in ("actor", "rollout", "reward"):
        try:
            container_rate(compute, role)
        except ValueError as error:
            raise ConfigError(f"compute.modal: {error}") from None
