"""Keep what loads found as baselines, and write all baselines into docs/benchmarks.md.

    python -m benchmarks.gpu_check.figures [FOLDER]

FOLDER holds what `make gpu-check` wrote: its records of a GPU in full size replace those of the
same load on the same hardware.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_check.record import BASELINES, Record, read
from benchmarks.jobs import ROOT

PAGE = ROOT / "docs/benchmarks.md"
BEGIN, END = "<!-- make gpu-figures writes this -->", "<!-- to here -->"


def keep(found: Path, baselines: Path = BASELINES) -> list[Path]:
    """Return where the records were kept; raises `ValueError` for a folder without any, and for one
    that was made on a CPU or in a tiny size."""
    paths = sorted(found.glob("load-*.json"))
    if not paths:
        raise ValueError(f"{found} holds no load-*.json")
    records = [read(path) for path in paths]
    for path, record in zip(paths, records, strict=True):
        if record.tiny or not record.is_gpu:
            size = "in a tiny size" if record.tiny else "on a CPU"
            raise ValueError(f"{path} was made {size}, on {record.hardware}: measure it on a GPU")
    for record in records:
        record.write(baselines / record.file)
    return [baselines / record.file for record in records]


def section(baselines: Path = BASELINES) -> str:
    """Return the section's text, of all baselines in the order of hardware and load."""
    records = [read(path) for path in baselines.glob("load-*.json")]
    if not records:
        return "No GPU has been measured.\n"
    records.sort(key=lambda record: (record.hardware, record.load))
    return "\n".join(line for record in records for line in _lines(record))


def _lines(record: Record) -> Iterator[str]:
    failed = [checked for checked in record.checks if not checked.passed]
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items() if number)
    commit = (record.commit or "not known")[:12]
    yield f"### Load {record.load}, {record.name}: {record.hardware}\n"
    yield (
        f"{record.date[:10]}, driver {record.driver}, {versions}, commit {commit}. "
        f"{len(record.checks) - len(failed)} of {len(record.checks)} checks passed"
        + "".join(f"; FAILED: {_cell(f'{one.name}: {one.measured}')}" for one in failed)
        + ".\n"
    )
    if record.figures:
        yield "| figure | |"
        yield "|---|---|"
        yield from (f"| {_cell(name)} | {figure} |" for name, figure in record.figures.items())
        yield ""


def _cell(text: str) -> str:
    return " ".join(text[:300].replace("|", "/").split())


def write(page: Path = PAGE, baselines: Path = BASELINES) -> None:
    """Replace the section on the page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{section(baselines)}{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("found", type=Path, nargs="?", help="folder of the records to keep")
    args = parser.parse_args()
    if args.found is not None:
        for path in keep(args.found):
            print(path)
    write()


if __name__ == "__main__":
    main()
