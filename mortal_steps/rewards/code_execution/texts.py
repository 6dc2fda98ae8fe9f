"""Texts of assertions as test cases."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mortal_steps.rewards.code_execution.cases import AssertCase

CHECK = "check"
"""The function that HumanEval's texts define, and leave to be called."""


def cases_in_program(text: str, entry_point: Any) -> Iterator[AssertCase]:
    """A test case for each assertion, where they stand apart from each other; else one for all.

    A text that defines `check` without calling it gets a call with `entry_point`. Raises
    `ValueError` for what is no Python, and for a text that would test nothing.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{text!r:.40} is no Python: {error}") from None
    if not body:
        return
    if _leaves_check_uncalled(body):
        yield AssertCase(statements=f"{text}\n{CHECK}({_entry(text, entry_point)})")
        return
    if not any(isinstance(node, ast.Assert | ast.Call | ast.Raise) for node in _run(body)):
        raise ValueError(
            f"{text!r:.40} tests nothing: it runs no assertion and no call; add one outside of its "
            "functions and classes"
        )
    shared = [node for node in body if not isinstance(node, ast.Assert)]
    asserts = body[len(shared) :]
    if not _apart(shared, asserts):
        yield AssertCase(statements=text)
        return
    before = [ast.unparse(node) for node in shared]
    for node in asserts:
        yield AssertCase(statements="\n".join([*before, ast.unparse(node)]))


def _apart(shared: Sequence[ast.stmt], asserts: Sequence[ast.stmt]) -> bool:
    """Whether each assertion can stand alone behind what is shared: none of them comes before a
    statement, and nothing is made that one could leave altered to the next."""
    return (
        bool(asserts)
        and all(isinstance(node, ast.Assert) for node in asserts)
        and all(map(_is_definition, shared))
        and not any(isinstance(node, ast.NamedExpr) for node in _run(asserts))
    )


def _is_definition(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr):
        return isinstance(node.value, ast.Constant | ast.Name)
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return isinstance(node, kinds)


def _leaves_check_uncalled(body: Sequence[ast.stmt]) -> bool:
    defined = any(isinstance(node, ast.FunctionDef) and node.name == CHECK for node in body)
    used = any(isinstance(node, ast.Name) and node.id == CHECK for node in _run(body))
    return defined and not used


def _entry(text: str, entry_point: Any) -> str:
    """The expression that `check` is called with."""
    if entry_point is None:
        raise ValueError(
            f"{text!r:.40} defines {CHECK} and never calls it; add a column `entry_point` with the "
            f"function's name, or `{CHECK}(NAME)` to the text"
        )
    try:
        return ast.unparse(ast.parse(entry_point, mode="eval"))
    except (SyntaxError, ValueError, TypeError):
        raise ValueError(
            f"the column entry_point = {entry_point!r:.80} names no function"
        ) from None


def _run(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and all below them that are run with the text: not the bodies of functions and
    classes."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    for node in nodes:
        yield node
        if not isinstance(node, definitions):
            yield from _run(ast.iter_child_nodes(node))
