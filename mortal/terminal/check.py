"""`mortal verify`: what is wrong with a run's files."""

from __future__ import annotations

from mortal.terminal.console import PlainConsole, console
from mortal_steps.runs.checked import Checked
from mortal_steps.runs.verify import FinishedCheck, RunCheck


def show_check(check: RunCheck | FinishedCheck, *, as_json: bool) -> bool:
    """Check a run, one line for each problem; returns whether there is none."""
    damaged: list[Checked] = []
    num_files = num_bytes = 0
    with PlainConsole(stderr=True).status("checking") as status:
        for file in check.files():
            num_files, num_bytes = num_files + 1, num_bytes + file.num_bytes
            status.update(f"checking: {num_files} files, {num_bytes / 1e9:.2f} GB")
            if file.damage is not None:
                damaged.append(file)
                if not as_json:
                    console.print(f"{file.path} {file.damage}: {file.outcome}")
    if as_json:
        console.print_json(
            data={
                "files": num_files,
                "bytes": num_bytes,
                "steps": check.num_steps,
                "linked": check.num_linked,
                "damaged": [
                    {"path": str(f.path), "damage": f.damage, "outcome": f.outcome} for f in damaged
                ],
            }
        )
    elif damaged and check.is_driven():
        console.print("The run is being driven: what it replaces meanwhile can look damaged.")
    elif not damaged:
        console.print(
            f"{num_files} files, {num_bytes / 1e9:.2f} GB, all as they were committed; "
            f"the chain of {check.num_linked} steps is whole"
        )
    return not damaged
