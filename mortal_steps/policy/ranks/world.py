"""Which of the ranks this process is."""

from __future__ import annotations

import datetime
import os
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from mortal_steps.errors import ComputeError
from mortal_steps.policy import private
from mortal_steps.policy.ranks.machines import STORE_PORT, Machines, machines

START_S = 1800.0
"""How long ranks may be apart, in seconds, while they import libraries and load the model."""
NCCL = {
    # Orders of reduction that do not depend on what NCCL measures when it starts; the algorithm of
    # NVLink switches does not repeat its bits (https://github.com/NVIDIA/nccl/issues/1497).
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_ALGO": "allreduce:tree;reducescatter:ring;allgather:ring",
    "NCCL_PROTO": "Simple",
}
"""Variables of every rank, unless they are set."""


_joined = (0, 1)
"""This process's rank, and how many there are. Variables of the environment may be a user's."""


neighbours: list[socket.socket] = []
"""Connections of the first rank of a machine to each of the others there; of these, to the first.
"""


def rank() -> int:
    """Return the number of this process among those that train together."""
    return _joined[0]


def num_ranks() -> int:
    """Return how many processes train together."""
    return _joined[1]


def is_first_here() -> bool:
    """Return whether this process is the first rank of its machine."""
    return _joined[0] % (_joined[1] // len(machines().addresses)) == 0


def own_rows(num_rows: int) -> slice:
    """Return the rows of a batch that this rank trains on: a block, as TRL's dataloader deals them
    out."""
    each = num_rows // num_ranks()
    return slice(rank() * each, (rank() + 1) * each)


def from_all(value: Any) -> list[Any]:
    """Return what each rank has, in the order of ranks. All of them take part."""
    if num_ranks() == 1:
        return [value]
    import torch  # see `join`

    found: list[Any] = [None] * num_ranks()
    torch.distributed.all_gather_object(found, value)
    return found


def join(
    number: int, count: int, rendezvous: Path, timeout_s: float, *, shards: bool = False
) -> None:
    """Make this process rank `number` of `count`; return once all have joined. With `shards`, the
    model is to be dealt out to them.

    They meet in the file `rendezvous`, or, if they are on several machines, at the first of these.
    A collective whose other ranks do not come ends, with the process or with an error, after
    `timeout_s`.
    """
    global _joined
    _joined = (number, count)
    here = machines()
    each = count // len(here.addresses)
    os.environ |= {
        "RANK": str(number),
        "LOCAL_RANK": str(number % each),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(each),
        # accelerate wants to know where they meet, and does not go there: they have met.
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface(here.addresses[here.number]))
    import torch  # takes seconds, and a process of one rank may not need it yet

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        for name, value in NCCL.items():
            os.environ.setdefault(name, value)
        torch.cuda.set_device(number % each)
    store = _store(here, number, count, rendezvous)
    store.set(str(number), "is here")
    store.wait([str(each) for each in range(count)], datetime.timedelta(seconds=START_S))
    torch.distributed.init_process_group(
        "cuda:nccl,cpu:gloo" if on_gpu else "gloo",
        store=torch.distributed.PrefixStore("ranks", store),
        rank=number,
        world_size=count,
        timeout=datetime.timedelta(seconds=timeout_s),
    )
    if shards and not on_gpu:
        private.let_cpus_shard()


def _store(here: Machines, number: int, count: int, rendezvous: Path) -> Any:
    import torch  # see `join`

    if not here.are_several:
        return torch.distributed.FileStore(str(rendezvous), count)
    return torch.distributed.TCPStore(
        here.addresses[0],
        STORE_PORT,
        is_master=number == 0,
        timeout=datetime.timedelta(seconds=START_S),
        wait_for_workers=False,
    )


def _interface(address: str) -> str:
    """Return the name of the network interface that has an address of this machine."""
    import psutil  # see `join`

    wanted = ip_address(address)
    for name, found in psutil.net_if_addrs().items():
        for each in found:
            if each.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            there = ip_address(each.address.partition("%")[0])
            if there == wanted or (there.is_loopback and wanted.is_loopback):
                return str(name)
    raise ComputeError(f"no network interface of this machine has its address {address}")
