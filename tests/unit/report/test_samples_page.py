"""The page of completions: what the model wrote stays text, and links choose a step."""

import html
import re

import pytest

from mortal_steps.config import RunConfig
from mortal_steps.errors import DataError
from mortal_steps.report.samples import Sample, told_steps
from mortal_steps.report.samples_page import samples_html, write_page
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.run_info import run_info

NASTY = [
    "<script>alert(1)</script>",
    "</pre></article></section><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "</style><script>alert(1)</script>",
    "{braces} and \x1b[31mred\ud800",
    "\n\n  kept\tapart",
    "",
]
FAILED = "correct raised KeyError: 'x' (exception, 3 calls)"


def sample(text="b", kind="best", step=4, **changes):
    known = {
        "kind": kind,
        "step": step,
        "problem_id": text,
        "prompt": [{"role": text, "content": text}],
        "text": text,
        "reward": None if kind == "masked" else 1.0,
        "rewards": {text: None if kind == "masked" else 0.5},
        "relative": None if kind == "masked" else -0.25,
        "why": [],
    }
    return Sample(**{**known, **changes})


@pytest.mark.parametrize("text", NASTY)
def test_what_the_model_wrote_stays_text(text):
    nasty = [sample(text), sample(text, "worst", prompt=text), sample(text, "masked", why=[text])]
    plain = [sample(), sample("b", "worst", prompt="b"), sample("b", "masked", why=["b"])]
    page = samples_html(text, {4: nasty}, {text: 2.0})
    tags = re.findall(r"<(/?\w+)", page)
    assert tags == re.findall(r"<(/?\w+)", samples_html("b", {4: plain}, {"b": 2.0}))
    assert "script" not in tags and not re.findall(r"<[^>]*\son\w+=", page)
    shown = text.replace("\t", "    ").replace("\x1b", "\\x1b").replace("\ud800", "\\ud800")
    assert f"<h4>completion</h4>\n<pre>\n{html.escape(shown)}</pre>" in page
    assert page.encode()


def test_the_page_loads_nothing_and_may_run_nothing():
    page = samples_html("r", {1: [sample()], 2: [sample()]}, {})
    assert "default-src 'none'" in page and "script-src" not in page
    assert "prefers-color-scheme: dark" in page
    assert re.findall(r'(?:href|src)="([^"]*)"', page.partition("<body>")[2]) == [
        "#step-1",
        "#step-2",
    ]


def test_steps_are_chosen_by_links_and_the_last_one_is_shown_at_first():
    page = samples_html("r", {step: [sample(step=step)] for step in (1, 7, 30)}, {})
    assert re.findall(r'<a href="#(.*?)">(\d+)</a>', page) == [
        ("step-1", "1"),
        ("step-7", "7"),
        ("step-30", "30"),
    ]
    assert re.findall(r'<section id="(.*?)"( class="last")?>', page) == [
        ("step-1", ""),
        ("step-7", ""),
        ("step-30", ' class="last"'),
    ]
    assert "<nav>" not in samples_html("r", {30: [sample()]}, {})


def test_a_card_tells_scores_weights_and_why_there_are_none():
    masked = sample("m", "masked", why=[FAILED])
    page = samples_html("r", {4: [sample("f"), masked, sample("z", "masked")]}, {"f": 0.5})
    assert "<li>f <b>0.500</b>" in page and "0.5</span>" in page
    assert "-0.250 from the mean of its group" in page
    assert f'<b>masked</b><span>m</span></header>\n<p class="why">{html.escape(FAILED)}</p>' in page
    assert "every function abstained" in page
    assert "None of its completions is of this kind" in samples_html("r", {4: []}, {})


@pytest.fixture
def run(tmp_path):
    return Run(RunStore(tmp_path / "run"), RunConfig(), run_info(tmp_path))


def test_the_steps_of_a_page_are_spread_over_the_run(run):
    run.update(step=9)
    assert told_steps(run, 12) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert told_steps(run, 3) == [1, 5, 9]
    assert told_steps(run, 1) == [9]
    run.update(step=0)
    assert told_steps(run, 3) == []


def test_a_run_that_has_done_nothing_has_no_page(run, tmp_path):
    run.update(step=0)
    with pytest.raises(DataError, match="has not done a step yet"):
        write_page(tmp_path / "page.html", run, 3)
    assert not (tmp_path / "page.html").exists()
