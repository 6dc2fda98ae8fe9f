"""The names under which Modal rents GPUs. Modal's client does not check them."""

from mortal_steps.extensions import nearest

GIB = 2**30
MEMORY = {
    "T4": 14.6,
    "L4": 22.0,
    "A10": 22.0,
    "L40S": 44.4,
    "A100": 39.4,
    "A100-40GB": 39.4,
    "A100-80GB": 79.2,
    "RTX-PRO-6000": 94.9,
    "H100": 79.2,
    "H100!": 79.2,
    "H200": 139.8,
    "B200": 178.0,
    "B200+": 178.0,
    "B300": 267.0,
}
"""About how much memory CUDA finds on each, in GiB. For A100, Modal may give 40 or 80 GB."""
GPUS = tuple(MEMORY)
ALIASES = {"A10G": "A10"}
"""Other common spellings."""
MOST_PER_CONTAINER = 8
FEWER_PER_CONTAINER = {"A10": 4}


def modal_gpu(wanted: str) -> str:
    """Return a GPU as Modal writes it: `A10G` becomes `A10`, `a100:2` `A100:2`. Raises `ValueError`
    for an unknown name, with the nearest, and a number too large for a container."""
    name, separator, count = wanted.partition(":")
    name = ALIASES.get(name.upper(), name.upper())
    if name not in GPUS:
        near = nearest(name, GPUS, cutoff=0.4)
        hint = f"did you mean {near}?" if near else f"known are {', '.join(GPUS)}"
        raise ValueError(f"Modal has no GPU {wanted!r}; {hint}")
    if not separator:
        return name
    most = FEWER_PER_CONTAINER.get(name, MOST_PER_CONTAINER)
    if not count.isdecimal() or not 1 <= int(count) <= most:
        raise ValueError(
            f"{wanted!r}: a container holds 1 to {most} GPUs of this kind; write {name}:2 for two"
        )
    return f"{name}:{count}"


def most_per_container(wanted: str) -> int:
    """Return how many such GPUs one container can have; raises what `modal_gpu` raises."""
    return FEWER_PER_CONTAINER.get(modal_gpu(wanted).partition(":")[0], MOST_PER_CONTAINER)


def gpu_count(wanted: str) -> int:
    """Return the number of GPUs that `A100:2` stands for; raises what `modal_gpu` raises."""
    return int(modal_gpu(wanted).partition(":")[2] or 1)


def memory_of(gpu: str) -> int:
    """Bytes of memory of one such GPU, at least."""
    return round(MEMORY[modal_gpu(gpu).partition(":")[0]] * GIB)
