"""Does this machine's GPU keep the promises? The same checks run on a CPU, in a tiny size.

    python -m benchmarks.gpu_check                       # all parts, about 40 minutes on a GPU
    python -m benchmarks.gpu_check rates training --output found
    python -m benchmarks.gpu_check sampling --vllm-python .venv-vllm/bin/python

A part ends within its minutes: what it has no time for is told, and counts as failed. After each
check, `<output>/<part>.json` and `<part>.txt` hold what was found so far. It needs no network, no
Prefect server and no account. docs/gpu-check.md has what each part proves, and what to expect.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.gpu_check import (
    attention,
    digests,
    exchange,
    killed,
    rates,
    repeats,
    sampling,
    steps,
    training,
)
from benchmarks.gpu_check.checked import Checked, Options
from benchmarks.gpu_check.device import describe_device
from benchmarks.output import RESULTS, console, results_table, write_results
from mortal_steps.config.rollout import WEIGHT_SYNC

DEFAULT_MINUTES = 9.0
COUNT = 4


def _training(folder: Path, options: Options) -> Iterator[Checked]:
    return chain(
        digests.check(folder / "digests", options),
        attention.check(folder / "long", options),
        training.check(folder, options),
        steps.check(folder / "steps", options),
    )


def _sampling(folder: Path, options: Options) -> Iterator[Checked]:
    dtype = "bfloat16" if options.is_gpu else "float32"
    return chain(
        repeats.check_eager(folder / "eager", options),
        sampling.check(folder / "syncs", options),
        exchange.check(
            "sampling", folder / "exchange", options, options.size, dtype, list(WEIGHT_SYNC)
        ),
    )


def _large(folder: Path, options: Options) -> Iterator[Checked]:
    size = 0.01 if options.tiny else 7.6
    return exchange.check("large", folder, options, size, "bfloat16", ["volume", "direct"])


PARTS: Mapping[str, Callable[[Path, Options], Iterator[Checked]]] = {
    "rates": rates.check,
    "training": _training,
    "sampling": _sampling,
    "compiled": repeats.check_compiled,
    "killed": killed.check,
    "large": _large,
    "ranks": training.check_ranks,
}


def main() -> int:
    args = _parse()
    device = describe_device()
    if device["why_no_gpu"]:
        console.print(
            f"This machine has a GPU, and torch cannot use it ({device['why_no_gpu']}).\n"
            "CUDA_VISIBLE_DEVICES= checks the CPU"
        )
        return 1
    console.print(f"on {device['name']}, torch {device['torch']}")
    engines = _engines(args.vllm_python)
    passed = True
    for part in args.parts:
        options = Options(
            engines=engines,
            is_gpu=device["is_gpu"],
            tiny=args.tiny or not device["is_gpu"],
            count=args.count,
            until=time.monotonic() + 60 * args.minutes,
        )
        passed &= _run(part, options, args.output, device)
    return int(not passed)


def _run(part: str, options: Options, output: Path, device: Mapping[str, Any]) -> bool:
    began, found = time.perf_counter(), []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        for checked in PARTS[part](Path(name), options):
            found.append(checked)
            console.print(checked.line(), markup=False)
            _write(output, part, found, time.perf_counter() - began, device)
    return all(checked.passed for checked in found)


def _write(
    output: Path, part: str, found: Sequence[Checked], took_s: float, device: Mapping[str, Any]
) -> None:
    """After each check, for whoever ends this process."""
    output.mkdir(parents=True, exist_ok=True)
    passed = sum(checked.passed for checked in found)
    table = results_table(
        f"{part} on {device['name']}: {passed} of {len(found)} passed in {took_s / 60:.1f} min",
        *("check", "passed", "seconds", "measured"),
        left=["check", "measured"],
    )
    for checked in found:
        verdict = "yes" if checked.passed else "NO"
        table.add_row(checked.name, verdict, f"{checked.took_s:.1f}", checked.measured)
    with (output / f"{part}.txt").open("w", encoding="utf-8") as file:
        Console(file=file, width=150, highlight=False).print(table)
    write_results(output / f"{part}.json", {"device": device, "checks": found}, told=False)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description="Training, sampling and speed on this machine's GPU, or its CPU.",
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=list(PARTS))
    parser.add_argument("--tiny", action="store_true", help="as on a CPU: does each part run?")
    parser.add_argument("--count", type=int, default=COUNT, help="configurations to train")
    parser.add_argument(
        "--minutes", type=float, default=DEFAULT_MINUTES, help="for each part, at most"
    )
    parser.add_argument(
        "--vllm-python", help="interpreter with vLLM (default: this one, where it has vLLM)"
    )
    parser.add_argument(
        "--output",
        type=lambda path: Path(path).absolute(),
        default=RESULTS / "gpu_check",
        help="folder for a table and a JSON file of each part",
    )
    return parser.parse_args()


def _engines(vllm_python: str | None) -> dict[str, str]:
    engines = {"transformers": sys.executable}
    if vllm_python is None and importlib.util.find_spec("vllm"):
        vllm_python = sys.executable
    if vllm_python is None:
        console.print("without vLLM: name an interpreter that has it with --vllm-python")
    else:
        engines["vllm"] = str(Path(vllm_python).absolute())
    return engines


if __name__ == "__main__":
    raise SystemExit(main())
