"""The forms in which datasets write test cases.

    "assert add(1, 2) == 3"                                  an assertion, or a text of several
    {"input": "1 2", "output": "3"}                          stdin and stdout
    {"function": "add", "args": [1, 2], "expected": 3}       a call
    {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}   calls; without a name, stdin and stdout

A list holds several, and a text may be JSON of any of these, or Python's own way to write them.
A table with a key that is not known here is refused, since it may change what is asked.
"""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mortal_steps.rewards.code_execution.cases import AssertCase, CallCase, Case, StdinCase

HARMLESS = frozenset(
    {
        *("category", "comment", "description", "difficulty", "explanation", "hidden", "id", "idx"),
        *("index", "is_hidden", "is_public", "is_sample", "level", "note", "public", "sample"),
        *("source", "tags", "title", "visibility"),
    }
)
"""Keys of a table that do not say how a test case works."""

NAMES = ("function", "fn_name")
TYPES = ("testtype", "type")
KINDS = {"stdin": False, "stdin_stdout": False, "functional": True, "function_call": True}
"""Values of `testtype` or `type` in a table, and whether each has a function called."""

CHECK = "check"
"""The function that HumanEval's texts define, and leave to be called."""


def cases_of(value: Any, entry_point: Any = None) -> list[Case]:
    """Return the test cases in a column; `entry_point` is what a text's `check` takes. Raises
    `ValueError` for what is none."""
    if value is None:
        return []
    if isinstance(value, str):
        if value.lstrip().startswith(("[", "{")):
            return cases_of(_literal(value), entry_point)
        return _cases_in_program(value, entry_point)
    if isinstance(value, Mapping):
        return _cases_in_table(value)
    if isinstance(value, list | tuple):
        return [case for each in value for case in cases_of(each, entry_point)]
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


def _cases_in_table(table: Mapping[str, Any]) -> list[Case]:
    given = {str(name): value for name, value in table.items() if value is not None}
    function = _function(given)
    asked = set(given) - HARMLESS - {*NAMES, *TYPES}
    if function is not None and "expected" in table and asked <= {"args", "kwargs", "expected"}:
        args, kwargs = given.get("args", []), given.get("kwargs", {})
        return [_call(function, args, kwargs, table["expected"])]
    if asked == {"inputs", "outputs"}:
        pairs = _pairs(given["inputs"], given["outputs"])
        return [_case(given, function, question, answer) for question, answer in pairs]
    if asked == {"input", "output"}:
        return [_case(given, function, given["input"], given["output"])]
    if asked == {"stdin", "stdout"} and function is None:
        return [_case(given, None, given["stdin"], given["stdout"])]
    raise ValueError(
        f"a test case with the keys {', '.join(sorted(given))} is of no known form; keep those of "
        "one form, such as input and output, and leave the others out"
    )


def _function(table: Mapping[str, Any]) -> str | None:
    """Return the name of the function to call; None where the program reads stdin."""
    names = [table[name] for name in NAMES if name in table]
    if len(names) > 1 or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ValueError(f"a test case names the function {names!r:.80}; write one name")
    for kind in (table[name] for name in TYPES if name in table):
        if kind not in list(KINDS):
            raise ValueError(
                f"a test case of the type {kind!r:.80}; the types are {', '.join(KINDS)}"
            )
        if KINDS[kind] != bool(names):
            raise ValueError(
                f"a test case of the type {kind!r} names {names[0] if names else 'no function'}; "
                "functional and function_call need a function's name as fn_name, the others none"
            )
    return names[0] if names else None


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


def _cases_in_program(text: str, entry_point: Any) -> list[Case]:
    """Return a test case for each assertion, where each can stand alone behind what is shared; else
    one for the whole text, and none for an empty one.

    A text that defines `check` without calling it gets a call with `entry_point`. Raises
    `ValueError` for what is no Python, and for a text that would test nothing.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{text!r:.40} is no Python: {error}") from None
    if not body:
        return []
    run = list(_run(body))
    defines = any(isinstance(node, ast.FunctionDef) and node.name == CHECK for node in body)
    if defines and not any(isinstance(node, ast.Name) and node.id == CHECK for node in run):
        return [AssertCase(statements=f"{text}\n{CHECK}({_entry(text, entry_point)})")]
    if not any(isinstance(node, ast.Assert | ast.Call | ast.Raise) for node in run):
        raise ValueError(
            f"{text!r:.40} tests nothing: it runs no assertion and no call; add one outside of its "
            "functions and classes"
        )
    shared = [node for node in body if not isinstance(node, ast.Assert)]
    asserts = body[len(shared) :]
    apart = all(map(_is_definition, shared)) and all(map(_stands_alone, asserts))
    if not (asserts and apart):
        return [AssertCase(statements=text)]
    before = [ast.unparse(node) for node in shared]
    return [AssertCase(statements="\n".join([*before, ast.unparse(node)])) for node in asserts]


def _is_definition(node: ast.stmt) -> bool:
    """Return whether a statement makes nothing that an assertion could alter."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr):
        return isinstance(node.value, ast.Constant | ast.Name)
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return isinstance(node, kinds)


def _stands_alone(node: ast.stmt) -> bool:
    named = any(isinstance(below, ast.NamedExpr) for below in _run([node]))
    return isinstance(node, ast.Assert) and not named


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
    """Return what runs with the text: not the bodies of functions and classes."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    for node in nodes:
        yield node
        if not isinstance(node, definitions):
            yield from _run(ast.iter_child_nodes(node))
