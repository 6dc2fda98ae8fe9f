"""Whether this machine has a GPU, whatever torch can do with it."""

import os

GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Files that exist on a machine with a GPU: NVIDIA's, AMD's, and that of a Windows host."""
NONE = ("", "-1")
"""Value of CUDA_VISIBLE_DEVICES for a process that shall see no GPU."""


def has_gpu() -> bool:
    return any(map(os.path.exists, GPUS))


def expects_gpu() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() not in NONE and has_gpu()
