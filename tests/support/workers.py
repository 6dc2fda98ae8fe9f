"""Workers for the tests of the local compute."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from mortal_steps.errors import DataError
from mortal_steps.types import StageTiming, WeightsRef
from tests.support.paths import ROOT

TESTS_IMPORTABLE = {"PYTHONPATH": str(ROOT)}
"""Environment of a container whose worker is one of these: it looks among what is installed."""


class Counter:
    def __init__(self, *, start: int = 0) -> None:
        if start < 0:
            raise DataError("start must not be negative")
        self.value = start

    def add(self, *, amount: int) -> int:
        self.value += amount
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def process(self) -> dict:
        """Return what tells a forked process from one that was started."""
        return {
            "parent": os.getppid(),
            "command": Path("/proc/self/cmdline").read_text().split("\0"),
            "name": Path("/proc/self/comm").read_text().strip(),
            "session": os.getsid(0),
            "folder": os.getcwd(),
            "temporary": tempfile.gettempdir(),
            "modules": sorted(sys.modules),
            "environment": dict(os.environ),
        }

    def threads_of_torch(self) -> int:
        import torch

        return torch.get_num_threads()

    def where(self) -> dict:
        return {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}

    def make_temporary_file(self) -> str:
        return tempfile.mkstemp()[1]

    def sleep(self, *, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    def wait_for(self, *, path: Path) -> str:
        while not path.exists():
            time.sleep(0.01)
        return "waited"

    def fail(self, *, kind: str) -> None:
        if kind == "own":
            raise DataError("no such thing")
        raise ZeroDivisionError("one by none")

    def use_gpu(self, *, broken: Path) -> int:
        """The process's id; a file `broken` breaks its GPU once, for every later call, too."""
        import torch

        self.is_broken = getattr(self, "is_broken", False) or broken.exists()
        if not self.is_broken:
            return os.getpid()
        broken.unlink()
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    def write(self, *, path: str) -> None:
        Path(path).write_text("written")

    def shout(self, *, characters: int) -> None:
        os.write(1, b"x" * characters)

    def echo(self, *, blob: bytes) -> bytes:
        return blob

    def prepare(self) -> None:
        """Dies where a file `dies-<process>` tells it to, as often as that has lines."""
        name = Path(os.readlink("/proc/self/fd/1")).stem
        orders = Path(os.readlink("/proc/self/fd/1")).with_name(f"dies-{name}")
        lines = orders.read_text().splitlines() if orders.exists() else []
        if lines:
            orders.write_text("\n".join(lines[1:]))
            os.kill(os.getpid(), signal.SIGKILL)


class Sampler:
    """A worker that gets ready first, as rollout workers do.

    Files in `folder` meddle with the one whose CUDA_VISIBLE_DEVICES is n: `holds-n` keeps it from
    getting ready, `ends-n` ends it when it tries.
    """

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        self._number = os.environ["CUDA_VISIBLE_DEVICES"]

    def start(self) -> None:
        if (self._folder / f"ends-{self._number}").exists():
            os._exit(3)
        while (self._folder / f"holds-{self._number}").exists():
            time.sleep(0.01)

    def refuse(self) -> None:
        raise DataError("no such engine")

    def generate(self, *, shard: int, seconds: float) -> tuple[int, int]:
        """Return what is made of the shard, and who made it."""
        time.sleep(seconds)
        return shard**2, os.getpid()

    def sync_weights(self, *, weights: object) -> None:
        """The worker is lost while it loads them."""
        os._exit(4)


class Loader:
    """A rollout worker that notes what it is asked, in `asked-<n>` of its folder, n being its
    CUDA_VISIBLE_DEVICES. It loads for as long as there is a file `holds`; where there is one named
    `refuses`, it cannot."""

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        self._number = os.environ["CUDA_VISIBLE_DEVICES"]

    def start(self) -> None:
        pass

    def sync_weights(self, *, weights: WeightsRef) -> StageTiming:
        self._note("loads")
        while (self._folder / "holds").exists():
            time.sleep(0.01)
        if (self._folder / "refuses").exists():
            raise DataError("these weights are not taken")
        return StageTiming(stage="sync_weights", step=weights.version)

    def generate(self) -> None:
        self._note("samples")

    def _note(self, what: str) -> None:
        with (self._folder / f"asked-{self._number}").open("a") as file:
            file.write(f"{what}\n")
