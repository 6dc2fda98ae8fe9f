"""Whether what a model comes from is still what it was when it was taken."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from mortal_steps.errors import MortalError
from mortal_steps.recipes.lineage.ancestors import GONE, Ancestor, Taken, is_version
from mortal_steps.recipes.stages import Output
from mortal_steps.runs.checked import AGAIN, LOST, Checked, Outcome
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file


def check_chain(ancestors: Sequence[Ancestor]) -> Iterator[Checked]:
    """Digest again what each has made and what each has taken from another, each file once, and
    compare it with what was noted. What is gone is damage only where it was noted as an input."""
    seen = set[tuple[str, str]]()
    for each in ancestors:
        if each.damage not in (None, GONE):
            yield Checked.of(Path(each.folder), each.damage, LOST)
        outcome = LOST if is_version(Path(each.folder)) else AGAIN
        for output in each.outputs:
            yield from _once(output, seen, f"what {each.name} made", outcome)
    for each in ancestors:
        for taken in each.takes:
            yield from _check_taken(taken, seen, each.name)


def _check_taken(taken: Taken, seen: set[tuple[str, str]], user: str) -> Iterator[Checked]:
    if taken.output is not None:
        yield from _once(taken.output, seen, f"what {user} took", LOST)
    elif taken.damage not in (None, GONE):
        path = Path(taken.made_by or taken.name)
        yield Checked.of(path, f"{taken.damage}; {user} took it as {taken.key}", LOST)
    elif taken.files:
        for name, noted in taken.files.items() if Path(taken.path).is_dir() else ():
            path = Path(taken.path, name)
            whole = path.is_file() and digest_file(path) == noted.sha256
            yield Checked.of(path, None if whole else f"is not what {user} took", LOST)


def _once(
    output: Output, seen: set[tuple[str, str]], what: str, outcome: Outcome
) -> Iterator[Checked]:
    if (output.path, output.sha256) in seen:
        return
    seen.add((output.path, output.sha256))
    path = Path(output.path)
    if output.kind == "run":
        yield Checked.of(path / "run.json", _run_damage(path, output, what), outcome)
    elif output.kind == "dataset":
        whole = path.is_file() and digest_file(path) == output.sha256
        yield Checked.of(path, None if whole else f"is not {what}", outcome)
    else:
        for file, damage in RunStore(path.parent).check_folder(path.name, output.sha256):
            yield Checked.of(file, None if damage is None else f"{damage}: not {what}", outcome)


def _run_damage(path: Path, output: Output, what: str) -> str | None:
    try:
        uid = find_run(path.parent, path.name).info.uid
    except MortalError as error:
        return str(error)
    return None if uid == output.sha256 else f"is of another run: not {what}"
