"""The forms in which datasets write test cases.

    "assert add(1, 2) == 3"                                  an assertion, or a text of several
    {"input": "1 2", "output": "3"}                          stdin and stdout
    {"function": "add", "args": [1, 2], "expected": 3}       a call
    {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}   calls; without a name, stdin and stdout

A list holds several, and a text may be JSON of any of these, or Python's own way to write them.
A table with a key that is not known here is refused, since it may change what is asked.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mortal_steps.rewards.code_execution.cases import AssertCase, CallCase, Case, StdinCase

HARMLESS = frozenset(
    {
        *("category", "comment", "description", "difficulty", "explanation", "hidden", "id", "idx"),
        *("index", "is_hidden", "is_public", "is_sample", "level", "note", "public", "sample"),
        *("source", "tags", "title", "visibility"),
    }
)
"""Keys of a table that say nothing of what is asked."""

NAMES = ("function", "fn_name")
KINDS = {"stdin": False, "stdin_stdout": False, "functional": True, "function_call": True}
"""What `testtype` or `type` of a table may say -> whether a function is called."""

CHECK = "check"
"""The function that HumanEval's texts define, and leave to be called."""

FORMS = ({"inputs", "outputs"}, {"input", "output"}, {"stdin", "stdout"})


def cases_of(value: Any, entry_point: Any = None) -> list[Case]:
    """Return the test cases that a column holds; `entry_point`: the function that a text's `check`
    takes.

    Raises `ValueError` for what is none.
    """
    return list(_cases(value, entry_point))


def _cases(value: Any, entry_point: Any) -> Iterator[Case]:
    if isinstance(value, str):
        if value.lstrip().startswith(("[", "{")):
            yield from _cases(_literal(value), entry_point)
        else:
            yield from _cases_in_program(value, entry_point)
    elif isinstance(value, Mapping):
        yield from _cases_in_table(value)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _cases(each, entry_point)
    elif value is not None:
        raise ValueError(f"{value!r:.80} is no test case")


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError(
            f"the text {text!r:.80} is neither JSON nor a list or table as Python writes it"
        ) from None


def _cases_in_table(table: Mapping[str, Any]) -> Iterator[Case]:
    given = {name: value for name, value in table.items() if value is not None}
    asked = set(map(str, given)) - HARMLESS - {"testtype", "type"}
    function = _function(given)
    asked -= set(NAMES)
    if function is not None and asked <= {"args", "kwargs", "expected"} and "expected" in table:
        args, kwargs = given.get("args", []), given.get("kwargs", {})
        yield _call(function, args, kwargs, table["expected"])
    elif asked not in FORMS:
        raise ValueError(
            f"a test case with the keys {', '.join(sorted(map(str, given)))} is of no known form; "
            "keep those of one form, such as input and output, and leave the others out"
        )
    elif asked == {"inputs", "outputs"}:
        for one, expected in _pairs(given["inputs"], given["outputs"]):
            yield _case(given, function, one, expected)
    else:
        question, answer = sorted(asked)
        if asked == {"stdin", "stdout"} and function is not None:
            raise ValueError(f"a test case has stdin and stdout, and the function {function!r} too")
        yield _case(given, function, given[question], given[answer])


def _function(table: Mapping[str, Any]) -> str | None:
    """Return the name of the function to call; None where the program reads stdin."""
    names = [table[name] for name in NAMES if name in table]
    kinds = [table[name] for name in ("testtype", "type") if name in table]
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(
                f"a test case of the type {kind!r:.80}; the types are {', '.join(KINDS)}"
            )
        if KINDS[kind] and not names:
            raise ValueError(
                f"a test case of the type {kind!r} names no function; add its name as fn_name"
            )
        if names and not KINDS[kind]:
            raise ValueError(
                f"a test case of the type {kind!r} names the function {names[0]!r:.80}; leave one "
                "of them out"
            )
    if not names:
        return None
    if len(names) > 1 or not (isinstance(names[0], str) and names[0].isidentifier()):
        raise ValueError(f"a test case names the function {names!r:.80}; write one name")
    return str(names[0])


def _pairs(inputs: Any, outputs: Any) -> Iterator[tuple[Any, Any]]:
    for name, values in (("inputs", inputs), ("outputs", outputs)):
        if not isinstance(values, list | tuple):
            raise ValueError(f"{name} = {values!r:.80} is no list, with one entry per test case")
    if len(inputs) != len(outputs):
        raise ValueError(f"there are {len(inputs)} inputs and {len(outputs)} outputs")
    return zip(inputs, outputs, strict=True)


def _case(table: Mapping[str, Any], function: str | None, question: Any, answer: Any) -> Case:
    """Return what `input` and `output` mean."""
    if function is None:
        return StdinCase(stdin=_text(question), stdout=_text(answer))
    if table.get("testtype") == "functional" and isinstance(question, str):
        # LiveCodeBench: a line of JSON for each argument, and the value as JSON
        question = [_json(line) for line in question.splitlines() if line.strip()]
        answer = _json(answer) if isinstance(answer, str) else answer
    return _call(function, question, {}, answer)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(
            f"a test case of the type 'functional' holds {text!r:.80}, which is no JSON"
        ) from None


def _call(function: str, args: Any, kwargs: Any, expected: Any) -> CallCase:
    if not isinstance(args, list | tuple):
        raise ValueError(f"{function} is called with {args!r:.80}; write a list of its arguments")
    if not (isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs)):
        raise ValueError(f"{function} is called with kwargs = {kwargs!r:.80}, which is no table")
    return CallCase(function=function, args=args, kwargs=kwargs, expected=expected)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        raise ValueError(f"{value!r:.80} is no text that a program could read or print")
    return "\n".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def _cases_in_program(text: str, entry_point: Any) -> Iterator[AssertCase]:
    """Return a test case for each assertion, where they stand apart from each other; else one for
    all.

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
    """Return the expression that `check` is called with."""
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
    """Return the nodes and all below them that are run with the text: not the bodies of functions
    and classes."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    for node in nodes:
        yield node
        if not isinstance(node, definitions):
            yield from _run(ast.iter_child_nodes(node))
