"""The files that the code is made of which a configuration names: an edited one is noticed.

Scores, and what a tool answers, are part of a run's bits. So a reward function that was edited
stops the run before it scores anything, until somebody accepts the edited one: by its digest, which
the error tells. The same is true of tools and environments, and when a run is resumed, of an
algorithm, an engine, episodes or a batch source of the user's.

A function's files are the one that defines it, and the user's own modules that these import. They
are parsed and not executed. Imports inside functions count, too, and so do calls of
`import_module` with a literal name. Installed packages and data files do not count, but for the
packages that environments are in: their versions are compared, and the files of those that come
from no index.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mortal_steps.errors import RewardError
from mortal_steps.models.local_folder import files_of
from mortal_steps.rewards.plan import CodePlan
from mortal_steps.rewards.source_history import (
    MISSING,
    RewardSources,
    find_history,
    write_history,
)
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file, digest_unless_changed
from mortal_steps.store.identity import read_identity
from mortal_steps.system.libraries import packages_of
from mortal_steps.users_code.files import files_behind
from mortal_steps.users_code.project import OURS, find_in

logger = logging.getLogger(__name__)


def begin_sources(store: RunStore, plan: CodePlan, working_dir: Path, step: int) -> None:
    """Record what a run begins with that stands at `step`."""
    write_history(store, (), _present(plan, working_dir), step)


def check_sources(store: RunStore, plan: CodePlan, working_dir: Path) -> None:
    """Raise `RewardError` if sources were changed and nobody has accepted that."""
    now = _seen_by_driver(store, plan, working_dir)
    history = find_history(store)
    if history and now is not None:
        _check(store, plan, history[-1].sources, now)


def check_files(store: RunStore, plan: CodePlan, working_dir: Path) -> None:
    """Do the same in a worker, which has all files that score. Its packages may be others than the
    driver's, which has compared those of the environments, and the other code."""
    if history := find_history(store):
        before = history[-1].sources
        now = _present_files(plan, working_dir, _began_in(store, working_dir))
        _check(store, plan, before, replace(now, packages=before.packages, code=before.code))


def note_sources(store: RunStore, plan: CodePlan, working_dir: Path, step: int) -> None:
    """Record new or accepted sources; only for the run's driver. Raises as `check_sources`."""
    now = _seen_by_driver(store, plan, working_dir)
    if now is None:
        return
    history = find_history(store)
    if history:
        _check(store, plan, history[-1].sources, now)
        before = history[-1].sources
        if changed := before.changes_to(now):
            logger.warning("from step %d on, other code is used: %s", step, "; ".join(changed))
        elif not now.tells_more_than(before):
            return
    else:
        logger.warning("the reward functions' sources are noted from step %d on", step)
    write_history(store, history, now, step)


def digest_of_present(plan: CodePlan, working_dir: Path) -> str:
    """Return the digest by which the code, as it is now, is accepted."""
    return _present(plan, working_dir).digest()


def folders_of_models(
    store: RunStore, plan: CodePlan, working_dir: Path
) -> dict[str, dict[str, str]]:
    """Return the folders of the run's reward models, each with the sha256 of its files by their
    names, as the run has noted them last; those of the hub are left out."""
    found = _noted_models(store, plan, working_dir)
    return {
        folder: {Path(path).name: sha256 for path, sha256 in files.items()}
        for folder, files in found.items()
    }


def find_sources(
    functions: Sequence[str],
    working_dir: Path,
    *,
    folders: Sequence[str] = (),
    began_in: Path | None = None,
) -> RewardSources:
    """Return the sources of functions as they are now, and the files of models in `folders`.
    Relative names start in `working_dir`. A name that is no folder is a model of the hub: its
    commit identifies it, and it has no files here.

    `began_in` is the folder in which the run began, which the names of model files start in as
    well; default: `working_dir`.
    """
    working_dir = working_dir.absolute()
    files = {
        _named(path, working_dir, began_in): digest_unless_changed(path)
        for folder in folders
        for path in files_of(working_dir / folder)
    }
    for spec in functions:
        module = spec.rpartition(":")[0]
        for path in files_behind(module, working_dir):
            files[_from(working_dir, path)] = digest_file(path) if path.is_file() else MISSING
    return RewardSources(files=files)


def _present(plan: CodePlan, working_dir: Path, began_in: Path | None = None) -> RewardSources:
    found = _present_files(plan, working_dir, began_in)
    code = find_sources(plan.training, working_dir).files or None
    return replace(found, packages=_packages(plan, working_dir), code=code)


def _present_files(plan: CodePlan, working_dir: Path, began_in: Path | None) -> RewardSources:
    folders = plan.model_folders
    found = find_sources(plan.scoring, working_dir, folders=folders, began_in=began_in)
    return replace(found, files={**found.files, **digests_of(plan.files, working_dir)})


def digests_of(files: Sequence[str], working_dir: Path) -> dict[str, str]:
    """Return the sha256 of each of these files, and of those in these folders, by its name;
    `missing` for what is not there."""
    working_dir, found = working_dir.absolute(), dict[str, str]()
    for path in (working_dir / file for file in files):
        below = [path] if not path.is_dir() else sorted(path.rglob("*"))
        kept = [each for each in below if not each.is_dir() and "__pycache__" not in each.parts]
        for each in kept:
            found[_from(working_dir, each)] = (
                digest_unless_changed(each) if each.is_file() else MISSING
            )
    return found


def _packages(plan: CodePlan, working_dir: Path) -> Mapping[str, str] | None:
    """Return the versions of what the environments are in, as their interpreter has it. Modules of
    the user's that the configuration names as code count as files instead."""
    code = {each.rpartition(":")[0] for each in plan.environment.code}
    users = {each for each in code if find_in([working_dir], each)}
    installed = set(plan.environment.modules) - users
    modules = sorted({each.partition(".")[0] for each in installed} - OURS)
    if not modules or not plan.compute.place.shares_files:
        return None
    python = plan.environment.python or plan.compute.local.rollout.python or sys.executable
    return packages_of(modules, python, working_dir)


def _seen_by_driver(store: RunStore, plan: CodePlan, working_dir: Path) -> RewardSources | None:
    """Return the present sources, None if another machine brought them to the Volume. Model folders
    that are not here, as a container scores, are taken as noted."""
    now = _present(plan, working_dir, _began_in(store, working_dir))
    if now.code and not plan.compute.place.here and set(now.code.values()) == {MISSING}:
        noted = find_history(store)
        now = replace(now, code=noted[-1].sources.code if noted else None)
    if not plan.compute.scores_in_a_container:
        return now
    if now.files and set(now.files.values()) == {MISSING}:
        return None
    elsewhere = {
        path: sha256
        for folder, files in _noted_models(store, plan, working_dir).items()
        if not (working_dir / folder).is_dir()
        for path, sha256 in files.items()
    }
    return replace(now, files={**now.files, **elsewhere})


def _noted_models(store: RunStore, plan: CodePlan, working_dir: Path) -> dict[str, dict[str, str]]:
    """Return the noted files of each folder of a reward model."""
    history = find_history(store)
    began, working_dir = _began_in(store, working_dir), working_dir.absolute()
    found: dict[str, dict[str, str]] = {}
    for folder in plan.model_folders if history else ():
        at = Path(_named(working_dir / folder, working_dir, began))
        noted = history[-1].sources.files.items()
        if files := {path: sha256 for path, sha256 in noted if Path(path).parent == at}:
            found[folder] = files
    return found


def _began_in(store: RunStore, working_dir: Path) -> Path:
    info = read_identity(store)
    return working_dir.absolute() if info is None else Path(info.working_dir)


def _check(store: RunStore, plan: CodePlan, before: RewardSources, now: RewardSources) -> None:
    changed = before.changes_to(now)
    if changed and plan.accept_changed != now.digest():
        raise RewardError(
            f"{_called(plan)} are not those that run {store.root.name} has used until now: "
            f"{'; '.join(changed)}. Restore them, or let the run continue with them: `mortal "
            f"resume {shlex.quote(str(store.root))} --accept-changed-rewards`, or for a "
            f"deployment's run set rewards.accept_changed = {now.digest()!r} in its parameters"
        )


def _called(plan: CodePlan) -> str:
    called = ["the reward functions"]
    if plan.environment.is_used:
        called.append("tools or environments")
    if plan.training:
        called.append(f"or the code of {', '.join(plan.training)}")
    return ", ".join(called)


def _named(path: Path, working_dir: Path, began_in: Path | None) -> str:
    """Return a model file's name, the same on every machine of the run."""
    name = _from(working_dir, path)
    return name if began_in is None else _from(began_in, Path(name))


def _from(working_dir: Path, path: Path) -> str:
    return str(path.relative_to(working_dir) if path.is_relative_to(working_dir) else path)
