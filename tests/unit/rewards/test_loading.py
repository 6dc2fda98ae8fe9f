"""mortal_steps.rewards.loading: from a spec to the function."""

import asyncio
import sys
from pathlib import Path

import pytest

from mortal.rewards.functions import exact_match
from mortal_steps.errors import RewardError
from mortal_steps.rewards.kinds.users_code import FunctionTerm
from mortal_steps.rewards.loading import load_reward, load_term

SOURCE = """
import helper_of_rewards

def short(completions, **kwargs):
    return [helper_of_rewards.ONE for _ in completions]

def long(completions, **kwargs):
    return [2.0 for _ in completions]

class Environment:
    def __call__(self, completions, **kwargs):
        return [3.0 for _ in completions]

ready = Environment()
number = 3
"""


@pytest.fixture(autouse=True)
def working_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    folder = tmp_path_factory.mktemp("work")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (folder / "my_rewards_module.py").write_text(SOURCE)
    (folder / "helper_of_rewards.py").write_text("ONE = 1.0")
    yield folder
    for name in ("my_rewards_module", "helper_of_rewards"):
        sys.modules.pop(name, None)


def test_from_an_installed_module() -> None:
    assert load_reward("mortal.rewards.functions:exact_match") is exact_match


def test_from_a_file_with_a_neighbour(working_folder: Path) -> None:
    (working_folder / "deep").mkdir()
    for file in ("my_rewards_module.py", "helper_of_rewards.py"):
        (working_folder / file).rename(working_folder / "deep" / file)
    assert load_reward("deep/my_rewards_module.py:short")(completions=["a"]) == [1.0]
    assert load_reward(f"{working_folder}/deep/my_rewards_module.py:long")(completions=["a"]) == [2]


def test_from_a_module_of_the_working_folder() -> None:
    assert load_reward("my_rewards_module:ready")(completions=["a"]) == [3.0]


def test_two_functions_of_a_file_share_its_module() -> None:
    short, long = (load_reward(f"my_rewards_module.py:{name}") for name in ("short", "long"))
    assert short.__globals__ is long.__globals__


def test_an_edited_file_is_read_anew(working_folder: Path) -> None:
    assert load_reward("my_rewards_module.py:long")(completions=["a"]) == [2.0]
    edited = SOURCE.replace("2.0", "5.0")
    (working_folder / "my_rewards_module.py").write_text(edited)
    assert load_reward("my_rewards_module.py:long")(completions=["a"]) == [5.0]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("exact_match", ["names no function", "package.module:function"]),
        ("my_rewards_module.py", ["names no function"]),
        ("my_rewards_module:", ["names no function"]),
        (":short", ["names no function"]),
        ("my rewards:short", ["names no function"]),
        ("my_reward_module.py:short", ["cannot read", "did you mean ./my_rewards_module.py?"]),
        ("nowhere/rewards.py:short", ["cannot read", "nowhere/rewards.py"]),
        ("my_rewards_modul:short", ["no module", "did you mean my_rewards_module?"]),
        ("no_such_module_at_all:short", ["no module 'no_such_module_at_all' from"]),
        (
            "mortal_steps.reward.functions:exact_match",
            ["no module 'mortal_steps.reward'", "did you mean mortal_steps.rewards?"],
        ),
        (
            "mortal_steps.rewards.function:exact_match",
            ["no module", "did you mean mortal_steps.rewards.functions?"],
        ),
        ("my_rewards_module.inner:short", ["no module 'my_rewards_module.inner'"]),
        ("my_rewards_module.py:shrt", ["has no 'shrt'", "did you mean short?"]),
        ("my_rewards_module.py:zzz", ["has no 'zzz'"]),
        ("my_rewards_module.py:number", ["of type int, not a function"]),
        ("my_rewards_module.py:Environment", ["is a class, not a function"]),
    ],
)
def test_bad_specs_are_named(spec: str, expected: list[str]) -> None:
    with pytest.raises(RewardError) as caught:
        load_reward(spec)
    assert str(caught.value).startswith(f"rewards.functions: {spec!r}")
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import no_such_module_at_all", ["ModuleNotFoundError: No module named 'no_such_module"]),
        ("value = 1 / 0", ["ZeroDivisionError: division by zero", "line 1", "value = 1 / 0"]),
        ("def f(:", ["SyntaxError"]),
        ("raise SystemExit(1)", ["SystemExit: 1"]),
    ],
)
@pytest.mark.parametrize("form", ["{}.py:f", "{}:f"])
def test_failing_imports_are_named(
    working_folder: Path, source: str, expected: list[str], form: str
) -> None:
    spec = form.format("broken_rewards_module")
    (working_folder / "broken_rewards_module.py").write_text(source)
    with pytest.raises(RewardError) as caught:
        load_reward(spec)
    assert str(caught.value).startswith(f"rewards.functions: {spec!r} cannot be imported: ")
    for part in expected:
        assert part in str(caught.value)


CHATS = {
    "prompts": [[{"role": "system", "content": "be short"}, {"role": "user", "content": "ab="}]],
    "completions": [[{"role": "assistant", "content": "ba"}]],
    "answer": ["ba"],
}


def test_a_function_may_be_given_plain_strings_in_place_of_messages(working_folder: Path) -> None:
    (working_folder / "plain.py").write_text(
        "def right(completions, prompts, answer, **kwargs):\n"
        "    assert prompts == ['ab=']\n"
        "    return [float(c.strip() == a) for c, a in zip(completions, answer)]\n"
        "async def later(completions, **kwargs):\n"
        "    return [float(len(text)) for text in completions]\n"
    )
    right, later = (
        load_term(FunctionTerm(function=f"plain.py:{name}", form="strings"))
        for name in ("right", "later")
    )
    assert right(**CHATS) == [1.0]
    assert right(**{**CHATS, "prompts": ["ab="], "completions": ["b"]}) == [0.0]
    assert asyncio.run(later(**CHATS)) == [2.0]


@pytest.mark.parametrize("name", ["ähnlich", "正确", "_é1"])
def test_a_function_may_have_any_name_that_python_takes(working_folder: Path, name: str) -> None:
    (working_folder / "prüfung [1].py").write_text(
        f"def {name}(completions, **kwargs):\n    return [4.0 for _ in completions]\n",
        encoding="utf-8",
    )
    assert load_reward(f"prüfung [1].py:{name}")(completions=["a"]) == [4.0]
    for wrong in (f"prüfung [1].py:1{name}", "prüfung [1].py:a-b"):
        with pytest.raises(RewardError, match="names no function"):
            load_reward(wrong)


def test_child_processes_find_a_file_though_sys_path_was_set_back(working_folder: Path) -> None:
    before = list(sys.path)
    load_reward("my_rewards_module.py:long")
    sys.path[:] = before
    (working_folder / "other.py").write_text(SOURCE)
    function = load_reward("other.py:long")
    assert any(Path(folder, f"{function.__module__}.py").exists() for folder in sys.path)
