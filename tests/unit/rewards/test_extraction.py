"""mortal.rewards.extraction: code in fences, tags, thoughts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mortal.rewards.extraction import (
    CodeBlock,
    code_blocks,
    extract_answer,
    extract_code,
    extract_thoughts,
    tagged,
    without_thoughts,
)

TWO = """First try:
```python
print(1)
```
Better:
```python
print(2)
```
Run it with
```bash
python it.py
```
"""

LINES = st.text(st.characters(exclude_characters="`~\r\n"))
"""Of which none is a fence."""

PROSE = st.text(st.characters(exclude_characters="<>"))


# --- code -----------------------------------------------------------------------------------------


def test_the_last_block_in_the_language_is_the_code_and_the_first_on_request() -> None:
    assert extract_code(TWO) == "print(2)\n"
    assert extract_code(TWO, which="first") == "print(1)\n"
    assert extract_code(TWO, languages=["Bash"]) == "python it.py\n"
    assert extract_code(TWO, languages=None) == "python it.py\n"
    assert extract_code(TWO, languages=["c"]) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code at all", None),
        ("", None),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("```py\nprint(1)\n```", "print(1)\n"),
        ("```Python3\nprint(1)\n```", "print(1)\n"),
        ('```{python}\nprint(1)\n```\n```text title="x"\n1\n```', "print(1)\n"),
        ("~~~python\nprint(1)\n~~~", "print(1)\n"),
        ("```\nprint(0)\n```\n```python\nprint(1)\n```\n```\n1\n```", "print(1)\n"),
        ("```python\nprint(1)\n```\n```python\n\n```", "print(1)\n"),
        ("use ```print(1)``` here", None),
        ("```print(1)```\n```python\nprint(2)\n```", "print(2)\n"),
        ("```json\n{}\n```", None),
    ],
)
def test_which_block_is_taken_for_python(text: str, code: str | None) -> None:
    assert extract_code(text) == code


def test_a_block_that_the_text_ends_in_is_taken_unless_asked_otherwise() -> None:
    cut_off = "```python\nprint(1)\n```\nor\n```python\nprint(2"
    assert extract_code(cut_off) == "print(2\n"
    assert extract_code(cut_off, unclosed=False) == "print(1)\n"
    assert [block.closed for block in code_blocks(cut_off)] == [True, False]


def test_a_fence_inside_a_longer_one_is_code() -> None:
    text = "````markdown\n```python\nprint(1)\n```\n````"
    assert code_blocks(text) == [
        CodeBlock(language="markdown", code="```python\nprint(1)\n```\n", closed=True)
    ]


def test_a_string_with_a_fence_and_more_in_its_line_does_not_end_a_block() -> None:
    assert extract_code('```python\na = """\n``` x\n"""\n```') == 'a = """\n``` x\n"""\n'


def test_line_ends_of_windows_are_taken_for_such_and_a_form_feed_is_left() -> None:
    assert extract_code("```python\r\na = 1\x0c\r\n```\r\n") == "a = 1\x0c\n"


def test_the_indentation_of_a_block_in_a_list_is_taken_away() -> None:
    text = "1. So:\n   ```python\n   if x:\n       y()\n\n  z()\n   ```\n"
    assert extract_code(text) == "if x:\n    y()\n\nz()\n"


@given(st.lists(LINES), st.sampled_from(["```", "````", "~~~"]))
def test_what_is_put_between_fences_comes_out(lines: list[str], fence: str) -> None:
    text = "\n".join([f"{fence}python", *lines, fence, "That is it."])
    (block,) = code_blocks(text)
    assert block == CodeBlock(
        language="python", code="".join(f"{line}\n" for line in lines), closed=True
    )


@given(st.text(alphabet="`~ab \n", max_size=60))
def test_whatever_the_text_its_blocks_hold_lines_of_it(text: str) -> None:
    blocks = code_blocks(text)
    assert all(block.closed for block in blocks[:-1])
    inside = [line for block in blocks for line in block.code.split("\n")[:-1]]
    left = iter(text.split("\n"))
    assert all(any(line == one.lstrip() or one.endswith(line) for one in left) for line in inside)


def test_code_in_thoughts_is_passed_over_where_the_thoughts_are_taken_away() -> None:
    text = "So:\n```python\nprint(2)\n"
    assert extract_code(without_thoughts(f"<think>```python\nprint(1)\n```</think>{text}")) == (
        "print(2)\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "```python\ns = '<think>a'\nprint(s.split('</think>')[0])\n```",
        "```python\nprint('</think>')\n```",
        "~~~\n<think>\n~~~",
    ],
)
def test_tags_of_thoughts_in_a_program_are_code(text: str) -> None:
    assert (without_thoughts(text), extract_thoughts(text)) == (text, None)


@pytest.mark.parametrize("end", ["</think>", "  </think>", "```</think>"])
def test_thoughts_end_behind_a_block_that_is_left_open_in_them(end: str) -> None:
    for begin in ("<think>\n", ""):
        text = f"{begin}```python\nprint('<think>')\n{end}```python\nprint(2)\n```"
        assert without_thoughts(text) == "```python\nprint(2)\n```"


# --- tags -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> 5 </answer>", "5"),
        ("<answer>4</answer> no, <answer>5</answer>", "5"),
        ("<answer>4</answer> no, <answer>5", "4"),
        ("<answer>5", None),
        ("5</answer>", None),
        ("5", None),
        ("<answer></answer>", ""),
        ("in <answer> tags: <answer>5</answer>", "5"),
        ("<answer>a <answer>5</answer> b</answer>", "5"),
        ("<answer>5</answer></answer>", "5"),
        ("<answer>\n5\n6\n</answer>", "5\n6"),
        ("<Answer>5</Answer>", None),
    ],
)
def test_the_answer_is_what_the_last_closed_tags_hold(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_any_tag_can_be_asked_for() -> None:
    assert tagged("<a.b>1</a.b><axb>2</axb><a.b>3</a.b>", "a.b") == ["1", "3"]
    assert extract_answer("<solution>7</solution>", tag="solution") == "7"


@given(st.lists(PROSE, min_size=1), PROSE)
def test_tags_give_back_what_was_put_into_them(answers: list[str], between: str) -> None:
    text = between.join(f"<answer>{answer}</answer>" for answer in answers)
    assert tagged(text, "answer") == answers
    assert extract_answer(text) == answers[-1].strip()


# --- thoughts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "thoughts", "rest"),
    [
        ("5", None, "5"),
        ("<think>so</think> 5", "so", "5"),
        ("<think>a<think>b</think>c</think>5", "abc", "5"),
        ("<think>a</think>1<think>b</think>2", "a\nb", "12"),
        ("so</think> 5", "so", "5"),
        ("<think>so on and", "so on and", ""),
        ("1<think>a</think>2<think>b", "a\nb", "12"),
        ("a</think>1</think>2", "a", "1</think>2"),
        ("a</think><think>b</think>2", "a\nb", "2"),
        ("<think></think>5", "", "5"),
    ],
)
def test_thoughts_and_the_rest(text: str, thoughts: str | None, rest: str) -> None:
    assert extract_thoughts(text) == thoughts
    assert without_thoughts(text) == rest


@given(PROSE, PROSE)
def test_what_stands_behind_the_thoughts_is_left(thought: str, rest: str) -> None:
    for text in (f"<think>{thought}</think>{rest}", f"{thought}</think>{rest}"):
        assert without_thoughts(text) == rest.strip()
        assert extract_thoughts(text) == thought.strip()


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " "])))
def test_thoughts_of_any_order_of_tags_are_well_defined(parts: list[str]) -> None:
    text = "".join(parts)
    rest = without_thoughts(text)
    assert "<think>" not in rest
    assert (extract_thoughts(text) is None) == (rest == text.strip())
