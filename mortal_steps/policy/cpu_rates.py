"""How fast this machine multiplies matrices, measured in fractions of a second."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MEASURED_S = 0.12
"""Seconds for which each product is repeated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """The product of a (rows, inner) and an (inner, columns) matrix."""

    rows: int
    inner: int
    columns: int
    dtype: str
    """Such as float32."""
    threads: int


def measure_rates(products: tuple[Product, ...]) -> tuple[float, ...]:
    """Return the floating point operations per second of each product, at its fastest."""
    return tuple(map(_measure, products))


def _measure(product: Product) -> float:
    import torch  # Imported where used: takes seconds.

    kind = getattr(torch, product.dtype)
    with torch.no_grad(), _threads(product.threads):
        left = torch.ones(product.rows, product.inner, dtype=kind)
        right = torch.ones(product.columns, product.inner, dtype=kind)
        torch.nn.functional.linear(left, right)  # the first one allocates and prepares
        shortest, began = float("inf"), time.perf_counter()
        while time.perf_counter() - began < MEASURED_S:
            at = time.perf_counter()
            torch.nn.functional.linear(left, right)
            shortest = min(shortest, time.perf_counter() - at)
    return 2 * product.rows * product.inner * product.columns / shortest


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
