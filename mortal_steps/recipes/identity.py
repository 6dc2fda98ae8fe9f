"""What decides what a run configuration produces, whatever its files are called and wherever they
lie.

A data file, a folder of a model and a file of the user's code stand in the identity of a stage by
their content: one that was moved or renamed, or the whole project, is the same; one that was edited
is another. What the code reads by itself, and the options that its own kinds take, are known by
what is written alone.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mortal_steps.config import DataConfig, ModelConfig, RewardsConfig
from mortal_steps.config.data import ENVIRONMENT, made_rows
from mortal_steps.config.eval_sets import Harness
from mortal_steps.config.section import values_in
from mortal_steps.data.sources.files import is_file, nearest_path
from mortal_steps.data.table import DATASET_SOURCES
from mortal_steps.errors import DataError, ModelError
from mortal_steps.models.hub import find_commit, is_hub_model
from mortal_steps.models.local_folder import files_of
from mortal_steps.plan.parts import Plan
from mortal_steps.recipes.references import find_reference
from mortal_steps.rewards.plan import CodePlan
from mortal_steps.rewards.sources import digest_of_present
from mortal_steps.store.files import digest_file, digest_unless_changed
from mortal_steps.store.folders import files_below
from mortal_steps.users_code.files import files_behind
from mortal_steps.users_code.loading import is_in_file
from mortal_steps.users_code.project import folders_of

CODE_TABLES = ("rewards", "evaluation", "environment", "algorithm", "rollout", "selection")
"""Tables that name code of the user's and models beside the trained one."""
OF_THE_RECIPE = "name"
"""The key that the recipe decides, and that decides no number."""


def parts_of(plan: Plan) -> dict[str, Any]:
    """Return what decides the product of a run with this plan, as plain values.

    References, which stand in it as `stage:NAME`, stay as they are. Raises `DataError` and
    `ModelError` for data and models that are not there, or of which nobody can say what they are
    now.
    """
    told_by = plan.identity
    found = {key: each for key, each in told_by.settings.items() if key != OF_THE_RECIPE}
    code = {spec: code_digest(spec) for spec in _users_code(plan.code)}
    found["data"] = {**found.get("data", {}), **_data_parts(told_by.data)}
    if told_by.model.new is None:
        found["model"] = {**found.get("model", {}), "name_or_path": model_content(told_by.model)}
    contents = {spec: _named(spec, digest) for spec, digest in code.items() if digest}
    for key, rewards in told_by.rewards.items():
        contents |= dict(_reward_models(rewards, key))
    for key, teacher in told_by.teachers.items():
        contents[teacher.name_or_path] = model_content(teacher, key)
    harnesses = told_by.harnesses
    files = dict(_harness_files(harnesses))
    contents |= {
        text: files[path]
        for each in harnesses.values()
        for _, text in values_in(dict(each))
        if isinstance(text, str) and (path := Path(os.path.expanduser(text))) in files
    }
    for table in CODE_TABLES:
        if table in found:
            found[table] = _replaced(found[table], contents)
    packages = None
    if plan.code.environment.is_used:
        counted = ("scoring", "training", "model_folders", "files")  # by their content, above
        nothing: Mapping[str, Any] = dict.fromkeys(counted, ())
        packages = digest_of_present(replace(plan.code, **nothing), Path.cwd())
    whole = {
        "config": found,
        "code": sorted({each for each in code.values() if each}),
        "packages": packages,
    }
    return whole | ({"files": sorted(files.values())} if files else {})


def code_digest(spec: str) -> str | None:
    """Return a digest of the user's files behind `path/file.py:name` or `module:name`; None for
    what is installed. Their names in it begin at that file, or at the working folder."""
    module, here = spec.rpartition(":")[0], Path.cwd()
    start = (here / module).absolute().parent if is_in_file(spec) else here
    files = {
        os.path.relpath(path, start): digest_file(path) if path.is_file() else "missing"
        for path in files_behind(module, folders_of(module, here), here)
    }
    if is_in_file(spec):  # a file may have another name, and be the same
        files[""] = files.pop(Path(module).name)
    return _digest(files) if files else None


def data_content(source: str, called: str) -> Any:
    """Return what tells the rows of a source from others. Errors name it as `called`."""
    if source in ("", ENVIRONMENT) or find_reference(source, called) is not None:
        return source
    if (made := made_rows(source)) is not None:
        digest = None if made.kind in DATASET_SOURCES else code_digest(source)
        return _named(source, digest) if digest else source
    path = Path(source).expanduser()
    if path.is_file():
        return {"type": path.suffix, "sha256": digest_unless_changed(path)}
    if path.is_dir():
        return {"folder": _folder_digest(path)}
    if is_file(path) or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise DataError(f"{called} = {source!r}: no such file or folder{nearest_path(path)}")
    return {"hub": source, "commit": _dataset_commit(source, called)}


def model_content(model: ModelConfig, called: str = "model.name_or_path") -> Any:
    """Return what tells a model that is loaded from others. Errors name it as `called`."""
    if find_reference(model.name_or_path, called) is not None:
        return model.name_or_path
    if is_hub_model(model):
        return {"hub": model.name_or_path, "commit": find_commit(model, called=called)}
    files = {path.name: digest_unless_changed(path) for path in files_of(Path(model.name_or_path))}
    if not files:
        raise ModelError(f"{called}: no such model folder: {model.name_or_path}")
    return {"folder": _digest(files)}


def _folder_digest(folder: Path, ignored: tuple[str, ...] = (".", "__")) -> str:
    """Return a digest of the files in a folder but for those whose path has a part that begins with
    an ignored text. By default, these are what no reader of a dataset looks at."""
    names = [
        name
        for name in files_below(folder)
        if not any(part.startswith(ignored) for part in Path(name).parts)
    ]
    return _digest({name: digest_unless_changed(folder / name) for name in names})


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _users_code(plan: CodePlan) -> Iterator[str]:
    for spec in (*plan.scoring, *plan.training):
        if find_reference(spec, "") is None:
            yield spec


def _named(spec: str, digest: str) -> str:
    """Return what stands for code: its files by their content, and the name in them."""
    module, _, name = spec.rpartition(":")
    return f"{digest}:{name}" if is_in_file(spec) else f"{module}@{digest}:{name}"


def _data_parts(data: DataConfig) -> dict[str, Any]:
    parts: dict[str, Any] = {"source": data_content(data.source, "data.source")}
    if data.eval_source is not None:
        parts["eval_source"] = data_content(data.eval_source, "data.eval_source")
    if data.eval_sets:
        parts["eval_sets"] = {
            name: data_content(source, f"data.eval_sets.{name}")
            for name, source in data.eval_sets.items()
        }
    return parts


def _reward_models(rewards: RewardsConfig, called: str) -> Iterator[tuple[str, Any]]:
    written = rewards.functions or (None,) * len(rewards.all_terms)
    for spec, term in zip(written, rewards.all_terms, strict=True):
        if term.source is not None:
            yield spec or term.source.name_or_path, model_content(term.source, f"{called}: model")
        for folder in term.folders[1:] if term.source is not None else term.folders:
            tokenizer = ModelConfig(name_or_path=folder)
            yield folder, model_content(tokenizer, f"{called}: tokenizer")


def _harness_files(harnesses: Mapping[str, Harness]) -> Iterator[tuple[Path, str]]:
    """Yield the files and folders that decide what harnesses score, and digests of what they
    hold."""
    for name, each in harnesses.items():
        for path in each.read_files:
            if path.is_dir():
                yield path, _folder_digest(path, (".", "__pycache__"))
            elif path.is_file():
                yield path, digest_unless_changed(path)
            else:
                raise DataError(
                    f"evaluation.sets.{name}: no such file or folder: {path}{nearest_path(path)}"
                )


def _replaced(values: Any, contents: Mapping[str, Any]) -> Any:
    """Return a copy of the values with contents in the place of names."""
    if isinstance(values, Mapping):
        return {name: _replaced(value, contents) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_replaced(value, contents) for value in values]
    return contents.get(values, values) if isinstance(values, str) else values


def _dataset_commit(name: str, called: str) -> str:
    """Return the commit of a dataset on the hub; without the hub, that of which its cache on this
    machine has files. Raises `DataError` where neither has it."""
    # Imported where used: takes a moment, and most recipes need no hub.
    from huggingface_hub import HfApi, constants, errors

    try:
        return str(HfApi().dataset_info(name).sha)
    except (OSError, ValueError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        folder = f"datasets--{name.replace('/', '--')}"
        cached = list(Path(constants.HF_HUB_CACHE, folder, "snapshots").glob("*"))
        if cached:
            return max(cached, key=lambda path: path.stat().st_mtime).name
        raise DataError(
            f"{called} = {name!r}: no such file or folder{nearest_path(Path(name))}; nor can the "
            f"hub say which commit of the dataset that is ({error}); save it to a folder, and name "
            "that"
        ) from error
