"""What vLLM has compiled, kept on a Volume from one container to the next.

    /hub/compiled/<key>/<digest>.tar    key: versions, GPU, model and options of the engine

An engine works on a copy on its container's own disk. vLLM writes the index of its cache in place,
and a Volume is committed at any moment, so neither a folder there nor a file's presence tells that
all of it is there: what is unpacked is one file that has the digest in its name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tarfile
import tempfile
from pathlib import Path

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.store.files import digest_file, writing_beside
from mortal_steps.system.libraries import gpu_versions

logger = logging.getLogger(__name__)

PINS = "MORTAL_VLLM_PINS"
"""Variable of an image with vLLM: digest of the versions of everything in its environment."""
HERE = Path(tempfile.gettempdir()) / "mortal-compiled"
"""The same in each container, for what is compiled names paths."""
CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "torch",
    "TRITON_CACHE_DIR": "triton",
}
"""Variables that tell where compilers keep what they made, and the folders for it in `HERE`."""


class Compiled:
    """The compiled kernels of a run's engines; `kept` is the folder of their key on the Volume."""

    def __init__(self, kept: Path, local: Path) -> None:
        self._kept, self._local = kept, local
        self._is_kept = False

    def unpack(self) -> None:
        """Bring what is kept to this container, and tell compilers where. Everyone takes the same
        where two containers have kept theirs at once."""
        os.environ.update({name: str(self._local / folder) for name, folder in CACHES.items()})
        self._local.mkdir(parents=True, exist_ok=True)
        for file in sorted(self._kept.glob("*.tar")):
            if digest_file(file) != file.stem:
                logger.warning("%s is not whole and is left aside", file)
                continue
            with tarfile.open(file) as archive:
                archive.extractall(self._local, filter="data")
            logger.info("vLLM finds what was compiled in %s", file)
            self._is_kept = True
            return

    def keep(self) -> bool:
        """Pack what an engine that has started compiled, unless it was unpacked; whether the Volume
        is to be committed."""
        if self._is_kept or not any(path.is_file() for path in self._local.rglob("*")):
            return False
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "packed.tar"
            with tarfile.open(packed, "w") as archive:
                archive.add(self._local, arcname=".")
            with writing_beside(self._kept / f"{digest_file(packed)}.tar") as file:
                file.write(packed.read_bytes())
        self._is_kept = True
        return True


def compiled_for(rollout: RolloutConfig, model: ModelConfig, hub: Path) -> Compiled | None:
    """Return where engines with these settings keep what they compile for the model as it is
    sampled; None where nothing is compiled for a GPU, or the user has chosen a folder."""
    pins, gpu = os.environ.get(PINS), gpu_versions()
    if rollout.engine != "vllm" or not pins or not gpu or set(CACHES) & set(os.environ):
        return None
    settings = [pins, gpu, model.model_dump(mode="json"), rollout.engine_options]
    content = json.dumps(settings, sort_keys=True, default=str)
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    return Compiled(hub / "compiled" / key, HERE / key)
