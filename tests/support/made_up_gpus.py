"""GPUs that this machine does not have."""

from pathlib import Path

from mortal_steps.compute import devices, placement
from mortal_steps.compute.devices import Gpu
from mortal_steps.config.gpus import GIB

SHAPES = Path(__file__).parent / "shapes"
"""The config.json of models that nobody has to download."""


def gpu(name="NVIDIA A10G", gib=22.0, *, bfloat16=True, number=0):
    return Gpu(
        name=name,
        memory=round(gib * GIB),
        bfloat16=bfloat16,
        uuid=f"0000-{number}",
        address=str(number),
    )


def several(count, name="NVIDIA A10G", gib=22.0, **about):
    return [gpu(name, gib, number=number, **about) for number in range(count)]


def let_there_be(monkeypatch, gpus):
    """Have torch see these, in every interpreter that is asked."""

    def ask(python, visible):
        names = None if visible is None else devices.named(visible)
        return tuple(one for one in gpus if names is None or one.address in names)

    monkeypatch.delenv(devices.VISIBLE, raising=False)
    monkeypatch.setattr(devices, "ask_gpus", ask)
    monkeypatch.setattr(placement, "has_gpu", lambda: bool(gpus))
