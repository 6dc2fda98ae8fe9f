"""What every module keeps to: no circles among imports, and the tests' own order."""

import ast
import graphlib
import re
from pathlib import Path

import grimp

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
MODULES = [path for path in sorted(TESTS.rglob("*.py")) if "modal_plane" not in path.parts]


def imported(path: Path) -> set[str]:
    """Every module that a file imports, and every name that it takes from one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def of_tests(path: Path) -> set[str]:
    """What a file imports from the tests or from the benchmarks."""
    return {name for name in imported(path) if name.split(".")[0] in ("tests", "benchmarks")}


def test_what_is_shared_is_in_support():
    """No test imports another test or a conftest; one of them tests `make gpu-check`."""
    shared = ("tests.support", "tests.modal_plane", "benchmarks.gpu_check")
    imports = {path: of_tests(path) for path in MODULES}
    taken = {
        path: {n for n in found if not n.startswith(shared)} for path, found in imports.items()
    }
    assert {str(path): names for path, names in taken.items() if names - {"tests"}} == {}
    assert any(imports.values()), "there is something to look at"


def test_every_test_is_in_a_tier():
    """`make test-fast`, `make scenarios` and testpaths know no other folders."""
    tiers = {"unit", "integration", "e2e", "modal_plane", "scenarios"}
    tests = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    assert {path.parts[0] for path in tests} == tiers


def test_the_files_that_hold_the_guarantees_are_there():
    text = (ROOT / "docs" / "guarantees.md").read_text()
    named = set(re.findall(r"`([\w/]*test_\w+\.py)`", text))
    folders = (TESTS,)
    there = [str(path) for folder in folders for path in folder.rglob("test_*.py")]
    assert named
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in there)} == set()


def test_what_is_exchanged_is_named_by_itself_and_in_its_table_alone():
    """The loop, the configuration and the checks ask a batch source, and never which one it is."""
    own = ("mortal_steps/atropos/", "mortal_steps/policy/algorithms/", "batch_sources/atropos")
    tables = {"mortal_steps/orchestration/batch_sources/table.py"}
    paths = [path for folder in ("flows", "mortal_steps") for path in (ROOT / folder).rglob("*.py")]
    found = set()
    for path in paths:
        if "atropos" not in (text := path.read_text()).lower():
            continue
        tree = ast.parse(text)
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if "atropos" in said or any("atropos" in n.lower() for n in names | imported(path)):
            found.add(str(path.relative_to(ROOT)))
    assert {path for path in found if not any(part in path for part in own)} == tables


def test_no_module_imports_one_that_imports_it():
    """Imports within functions count: a circle is no better for being lazy."""
    packages = ("mortal", "mortal_flows", "mortal_tasks", "mortal_steps", "mortal_deployments")
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 400
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError with the modules of a circle


PRODUCT = ("mortal", "mortal_steps", "flows", "tasks", "deployments")
OPENS = r"open\(|_text\("
NO_FILES = {"os", "tarfile", "Image", "cells", "process", "package", "opener"}
"""What has methods of these names that read no file as text, or do not ask for its encoding."""


def test_text_is_read_and_written_as_utf_8_whatever_the_machine_prefers():
    paths = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    texts = {path: path.read_text() for path in paths}
    trees = {path: ast.parse(each) for path, each in texts.items() if re.search(OPENS, each)}
    calls = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    assert calls
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path, node in calls
        if isinstance(node, ast.Call) and is_of_text(node) and not names_encoding(node)
    ]
    assert found == []


def names_encoding(call: ast.Call) -> bool:
    return any(keyword.arg == "encoding" for keyword in call.keywords)


def is_of_text(call: ast.Call) -> bool:
    """Whether a call opens a file as text, or reads or writes one whole."""
    called, arguments = call.func, call.args
    if isinstance(called, ast.Name) and called.id == "open":
        arguments = arguments[1:]
    elif not isinstance(called, ast.Attribute) or ast.unparse(called.value) in NO_FILES:
        return False
    elif called.attr != "open":
        return called.attr in ("read_text", "write_text")
    named = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    mode = [*arguments[:1], *named, ast.Constant("r")][0]
    return not (isinstance(mode, ast.Constant) and "b" in mode.value)
