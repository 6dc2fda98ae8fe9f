"""vLLM in three places: a process here, a container of its own image, a process of a node.

    python -m benchmarks.modal_vllm                        # make modal-vllm

The containers are of the local control plane, tests/modal_plane, and offline. The same interpreter
is behind all three: in a container of its own the image names it, in single-node mode a Secret
does. Exits with 1 if a run ends with other bits than the one here.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.output import console
from mortal_steps.rollout.engines.table import VLLM_PYTHON as PYTHON_ON_NODE
from tests.modal_plane.plane import ModalPlane, client_environment
from tests.support.modal.project import ON_MODAL
from tests.support.modal.sources import hidden_sources
from tests.support.modal.with_vllm import drive_beside
from tests.support.paths import VLLM_PYTHON

PLACES = {
    "here": (),
    "apart": ON_MODAL,
    "node": (*ON_MODAL, "compute.mode=single_node", "compute.modal.secrets=['node']"),
}


def main() -> None:
    """Drive the runs beside each other, then compare."""
    options = ["--env", "HF_HUB_OFFLINE=1", "--env", "OMP_NUM_THREADS=1"]
    options += ["--python", f"/opt/vllm={sys.executable}", "--python", f"vllm={VLLM_PYTHON}"]
    with tempfile.TemporaryDirectory(prefix="modal-vllm-") as name:
        folder = Path(name)
        with (
            ModalPlane(folder / "plane", *hidden_sources(), *options) as plane,
            client_environment(plane),
        ):
            import modal  # it reads where Modal is once, when it is imported

            plane.run(sys.executable, "-m", "mortal", "deploy", env={"PREFECT_API_URL": ""})
            modal.Secret.objects.create("node", {PYTHON_ON_NODE: str(VLLM_PYTHON)})
            here, *others = drive_beside(folder, PLACES)
        same = True
        for run in others:
            equal = run.manifest.final.weights_sha256 == here.manifest.final.weights_sha256
            equal = equal and run.metrics() == here.metrics()
            console.print(f"{run.info.run_id}: {'the same bits' if equal else 'OTHER BITS'}")
            same = same and equal
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
