"""vLLM's CUDA build in two parcels, each small enough for a machine that is reached by small loads.

    python -m benchmarks.gpu_check.parcels pack vllm-0.31.0-...whl build/vllm
    python benchmarks/gpu_check/parcels.py unpack build/vllm/1 /tmp/vllm     # needs Python alone

What a dense model on a Hopper GPU does not need is left out: FlashAttention 2, the kernels of other
models and formats, and the server. In a parcel, wheels beside the archive are installed with it.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

FIRST = re.compile(r"vllm/(_C_stable_libtorch|cumem_allocator)\.")
LEFT_OUT = re.compile(
    r"vllm/(vllm-rs$|vllm_flash_attn/_vllm_fa2_C|_moe_C|_flashkda_C|_deepselect_C|_flashmla"
    r"|_qutlass_C|_rust_tool_parser|third_party/.*\.so$)"
)
ARCHIVE = "vllm.tar.xz"
MIB = 1 << 20


def pack(wheel: Path, into: Path) -> None:
    """Write `into/1` and `into/2`; print their sizes."""
    with zipfile.ZipFile(wheel) as packed:
        names = [one for one in packed.namelist() if not one.endswith("/")]
        names = [one for one in names if not LEFT_OUT.match(one)]
        for number, is_first in (("1", True), ("2", False)):
            archive = into / number / ARCHIVE
            archive.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(archive, "w:xz") as parcel:
                for name in (one for one in names if bool(FIRST.match(one)) == is_first):
                    member = tarfile.TarInfo(name)
                    member.size = packed.getinfo(name).file_size
                    parcel.addfile(member, io.BytesIO(packed.read(name)))
            print(f"{archive}: {archive.stat().st_size / MIB:.1f} MiB")


def unpack(parcel: Path, into: Path) -> None:
    """Add a parcel to the folder that PYTHONPATH is to name."""
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(parcel / ARCHIVE) as archive:
        archive.extractall(into, filter="data")
    wheels = sorted(map(str, parcel.glob("*.whl")))
    if wheels:
        options = ["--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(into)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["pack", "unpack"])
    parser.add_argument("source", type=Path, help="the wheel, or a parcel's folder")
    parser.add_argument("into", type=Path, help="folder")
    args = parser.parse_args()
    (pack if args.what == "pack" else unpack)(args.source, args.into)


if __name__ == "__main__":
    main()
