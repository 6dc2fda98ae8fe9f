"""A small app of the kind that the plane is for; the tests deploy it and call it."""

import os
import subprocess
import time
from pathlib import Path

import modal

MOUNT = Path(os.environ.get("SAMPLE_MOUNT", "/data"))
"""Where the volume is, in the containers that mount it."""

app = modal.App("sample")
image = modal.Image.debian_slim(python_version="3.11").add_local_python_source("tests")
gates = modal.Dict.from_name("sample-gates", create_if_missing=True)
"""Keys that the tests set for calls that wait for them."""
volume = modal.Volume.from_name("sample-data", create_if_missing=True, version=2)


class SampleError(Exception):
    """What `fail` raises."""


@app.function(image=image, timeout=60)
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@app.function(image=image, timeout=60)
def double_elsewhere(number: int) -> int:
    """Twice the number, by a call from inside a container."""
    return int(double.remote(number))


@app.function(image=image, timeout=60)
def echo(data: bytes) -> bytes:
    """The bytes themselves."""
    return data


@app.function(image=image, timeout=60, retries=modal.Retries(max_retries=2, initial_delay=0.0))
def fail(key: str) -> str:
    """Raise; the message tells the attempt of this container."""
    raise SampleError(key)


@app.function(image=image, timeout=1)
def hang(how: str) -> None:
    """Run into the timeout; with `stubborn` ignore that."""
    while True:
        try:
            time.sleep(60)
        except (KeyboardInterrupt, modal.exception.InputCancellation):
            if how != "stubborn":
                raise


@app.function(image=image, timeout=60, secrets=[modal.Secret.from_name("sample-secret")])
def reveal(name: str) -> str | None:
    """A variable of the container."""
    return os.environ.get(name)


@app.function(image=image, timeout=60, scaledown_window=2)
def start_process() -> int:
    """Leave a process behind, in a session of its own; its pid."""
    return subprocess.Popen(["sleep", "300"], start_new_session=True).pid


@app.function(image=image, gpu="H100:8", timeout=60, max_containers=2, scaledown_window=2)
@modal.clustered(size=2)
def meet(key: str) -> list[str]:
    """The ids of the cluster's containers by rank, each noted by the container itself."""
    cluster = modal.Cluster.from_context()
    ranks = range(len(cluster.container_ips()))
    gates[f"{key}-{cluster.container_rank()}"] = os.environ["MODAL_TASK_ID"]
    while not all(gates.contains(f"{key}-{rank}") for rank in ranks):
        time.sleep(0.05)
    return [gates[f"{key}-{rank}"] for rank in ranks]


@app.cls(
    image=image,
    gpu="T4",
    timeout=120,
    volumes={str(MOUNT): volume},
    max_containers=1,
    scaledown_window=2,
)
class Counter:
    """Counts in memory; each name is a pool of one container."""

    name: str = modal.parameter()

    @modal.enter()
    def start(self) -> None:
        """Begin at 0."""
        self.count = 0

    @modal.method()
    def add(self, number: int, seconds: float = 0.0) -> tuple[str, int]:
        """(container id, the count), after a while."""
        time.sleep(seconds)
        self.count += number
        return os.environ["MODAL_TASK_ID"], self.count

    @modal.method()
    def wait_for(self, gate: str) -> str:
        """The container's id, once there is such a key."""
        while not gates.contains(gate):
            time.sleep(0.05)
        return os.environ["MODAL_TASK_ID"]

    @modal.method()
    def write(self, name: str, text: str, commit: bool) -> None:
        """Write a file in the volume."""
        (MOUNT / name).write_text(text)
        if commit:
            volume.commit()

    @modal.method()
    def read(self, name: str, reload: bool) -> str | None:
        """A file's text as this container sees it."""
        if reload:
            volume.reload()
        path = MOUNT / name
        return path.read_text() if path.exists() else None

    @modal.method()
    def reload_beside_open_file(self, name: str) -> str:
        """What a reload says while a file of the volume is open."""
        with (MOUNT / name).open("w"):
            return self._reload()

    @modal.method()
    def reload_beside_a_child(self, name: str) -> str:
        """What a reload says while a process in a session of its own has one open."""
        (MOUNT / name).touch()
        command = ["sleep", "60"]
        with (MOUNT / name).open() as file:
            child = subprocess.Popen(command, stdin=file, start_new_session=True)
        try:
            return self._reload()
        finally:
            child.kill()
            child.wait()

    def _reload(self) -> str:
        try:
            volume.reload()
        except RuntimeError as error:
            return str(error)
        return "reloaded"


@app.local_entrypoint()
def main(number: int = 1) -> None:
    """For `modal run`."""
    print("doubled:", double.remote(number))  # noqa: T201
