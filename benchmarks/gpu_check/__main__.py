"""Does this machine's GPU keep the promises? The same checks run on a CPU, in a tiny size.

    python -m benchmarks.gpu_check                       # all loads, about an hour on a GPU
    python -m benchmarks.gpu_check 1 --model SmolLM2-135M-Instruct.Q4_1.gguf --output found
    python -m benchmarks.gpu_check 2 3 --vllm-python .venv-vllm/bin/python

A load ends within its minutes: what it has no time for is told, and counts as failed. After each
check, `<output>/load-<number>.json` and `.txt` hold what was found so far. Where a load was
measured on the same hardware before, a figure that is more than 5 % worse fails its check. It needs
no network, no Prefect server and no account. docs/gpu-check.md has what each load proves.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.gpu_check.checked import Checked, Options
from benchmarks.gpu_check.loads import LOADS, Load
from benchmarks.gpu_check.record import Record, baseline_of, held_to
from benchmarks.jobs import ask
from benchmarks.output import RESULTS, absolute_path, console, folder_for, results_table


def main() -> int:
    args = _parse()
    device = ask("gpu_check.record:describe_device", {})
    if device["why_no_gpu"]:
        console.print(
            f"This machine has a GPU, and torch cannot use it ({device['why_no_gpu']}).\n"
            "CUDA_VISIBLE_DEVICES= checks the CPU"
        )
        return 1
    console.print(f"on {device['name']}, torch {device['torch']}")
    options = Options(
        engines=_engines(args.vllm_python),
        is_gpu=device["is_gpu"],
        tiny=args.tiny or not device["is_gpu"],
        until=0.0,
        model=args.model,
    )
    passed = [_run(number, options, args, device) for number in args.loads]
    return int(not all(passed))


def _run(
    number: int, options: Options, args: argparse.Namespace, device: Mapping[str, Any]
) -> bool:
    """Whether all checks of a load passed."""
    load, began, found = LOADS[number], time.monotonic(), list[Checked]()
    record = Record.begin(number, load.name, device, tiny=options.tiny, commit=args.commit)
    baseline = baseline_of(record)
    console.print(f"load {number}, {load.name}: {_compared(baseline)}")
    with folder_for("gpu-check") as folder:
        for checked in _checks(load, folder, options, args.minutes):
            found.append(held_to(baseline, checked))
            console.print(found[-1].line(), markup=False)
            record = record.with_checks(found)
            record.write(args.output / f"load-{number}.json")
            _write_table(args.output / f"load-{number}.txt", record, time.monotonic() - began)
    return all(checked.passed for checked in found)


def _checks(load: Load, folder: Path, options: Options, minutes: float) -> Iterator[Checked]:
    """Yield those of each part, which ends with its minutes, and takes what was left before it."""
    until = time.monotonic()
    for part in load.parts:
        until += 60 * part.minutes * minutes
        yield from part.check(folder / part.name, replace(options, until=until))


def _compared(baseline: Record | None) -> str:
    if baseline is None:
        return "there are no figures of this hardware to compare with"
    return f"compared with what {baseline.hardware} did on {baseline.date}"


def _write_table(path: Path, record: Record, took_s: float) -> None:
    """After each check, for whoever ends this process."""
    passed = sum(checked.passed for checked in record.checks)
    title = (
        f"load {record.load}, {record.name}, on {record.hardware}: "
        f"{passed} of {len(record.checks)} passed in {took_s / 60:.1f} min"
    )
    rows = [
        {
            "check": checked.name,
            "passed": "yes" if checked.passed else "NO",
            "seconds": f"{checked.took_s:.1f}",
            "measured": checked.measured,
        }
        for checked in record.checks
    ]
    table = results_table(title, rows, left=["check", "measured"])
    with path.open("w", encoding="utf-8") as file:
        Console(file=file, width=150, highlight=False, markup=False).print(table)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description="Training, sampling and speed on this machine's GPU, or its CPU.",
        epilog="; ".join(f"{number}: {load.name}" for number, load in LOADS.items()),
    )
    parser.add_argument(
        "loads", nargs="*", type=int, choices=[[], *LOADS], default=list(LOADS), metavar="LOAD"
    )
    parser.add_argument("--tiny", action="store_true", help="as on a CPU: does each check run?")
    parser.add_argument("--model", type=absolute_path, help="of load 1: a GGUF file, or a folder")
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="factor for those of each part (default: 1)"
    )
    parser.add_argument(
        "--vllm-python", help="interpreter with vLLM (default: this one, where it has vLLM)"
    )
    parser.add_argument("--commit", help="of this project, where git cannot tell it")
    parser.add_argument(
        "--output",
        type=absolute_path,
        default=RESULTS / "gpu_check",
        help="folder for a table and a JSON file of each load",
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
