"""The report of a run: Markdown and HTML, from a run directory and from facts of any kind."""

import dataclasses
import html
import json
import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from mortal.terminal.display import console, show_run
from mortal.terminal.output import print_json
from mortal_steps.config import RewardsConfig
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.markdown import bar, code, fenced, table
from mortal_steps.report.report_files import report_html, report_in_one, write_report
from mortal_steps.report.run_report import report_markdown
from mortal_steps.report.samples import Sample
from mortal_steps.report.summary import summarize
from mortal_steps.runs.notices import new_notice, note
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import Evaluation, FinalModel, StageTiming
from mortal_steps.types.identity import ModelFile
from tests.support.run_info import run_info

NASTY = [
    "<script>alert(1)</script>",
    "```\n# out of the fence\n```",
    "````\n`````x\n<img src=x onerror=alert(1)>",
    "~~~\n[a](javascript:alert(1))",
    "![x](http://elsewhere/x.png)",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "\x1b[31mred\ud800",
    "",
]


@pytest.fixture
def run(tmp_path):
    """A run of nine steps that stands at the fourth."""
    rewards = RewardsConfig(functions=("m:a",), on_error="mask")
    run = Run(RunStore(tmp_path / "run"), RunConfig(rewards=rewards), run_info(tmp_path))
    run.update(status="created")
    counts = {
        "num_sampled_tokens": 1000,
        "rewards/a/mean": 0.25,
        "rewards/a/std": 0.125,
        "rewards/a/failed_calls": 1,
        "rewards/a/masked": 2,
    }
    for step in range(1, 5):
        run.append("metrics.jsonl", {"step": step, "reward": step / 10, **counts})
        timings = {"generate": 0.6, "reward": 0.0, "train_step": 0.4}
        for stage, busy_s in timings.items():
            row = {"step": step, "stage": stage, "busy_s": busy_s, "wait_s": 0.1}
            if stage == "reward":
                row["functions"] = {"a": 0.002}
            run.append("timings.jsonl", row)
    for step, reward in ((0, 0.1), (2, 0.9), (4, 0.5)):
        run.append("evaluations.jsonl", {"step": step, "a": reward, "reward": reward})
    run.update(step=4, status="stopped", error="stopped by SIGINT", attempts=3)
    return run


def sample(text, kind="best"):
    return Sample(
        kind=kind,
        step=4,
        problem_id=text,
        prompt=[{"role": "user", "content": text}],
        text=text,
        reward=None if kind == "masked" else 1.0,
        rewards={text: None},
    )


def test_the_report_tells_how_a_run_stands(run):
    write_report(run)
    report = run.store.path("report.md").read_text()
    for part in (
        "# `r`: stopped, step 4 of 9",
        "█████████░░░░░░░░░░░ 44 %",
        "It ended early:\n\n```text\nstopped by SIGINT\n```",
        "4,000 tokens sampled for training",
        "![reward curve](reward_curve.png)",
        "**0.150** over the first 2 steps, **0.350** over the last 2",
        "| score | first, step 0 | best, step 2 | last, step 4 |",
        "| `reward` | 0.100 | 0.900 | 0.500 |",
        "| generate | 4 | 2.40 s | 600.0 ms | 60.0 % | 0.40 s | ████████████ |",
        "| reward function | mean | std | failed calls | masked | latency |",
        "| `a` | 0.250 | 0.125 | 4 | 8 | 2.0 ms |",
        "| reward | 4 | 0.00 s | 0.0 ms | 0.0 % | 0.40 s |",
        "| `reward: a` | 4 | 0.01 s | 2.0 ms | 0.2 % | 0.00 s |",
        "- started 3 times",
        "- 4 failed calls of reward functions",
        "- 8 completions masked",
        f"mortal resume r --runs-dir {run.store.root.parent}",
    ):
        assert part in report
    assert "$" not in report, "a run that cost nothing tells no price"
    assert "base64" not in report, "what nobody can read on a terminal or in a pull request"


def test_how_episodes_went_stands_behind_the_scores(run):
    scores = {"episodes/turns": 2.0, "episodes/stop_done": 1.0, "shop": 0.5}
    report = report_markdown(summarize(run), evaluations=[{"step": 1, **scores}])
    assert report.index("`shop`") < report.index("`episodes/turns`")
    with console.capture() as shown:
        show_run(replace(summarize(run), eval=scores, eval_step=1))
    (line,) = [line for line in shown.get().splitlines() if "after step 1" in line]
    assert "shop 0.500" in line and "turns" not in line


def test_the_page_holds_everything_and_loads_nothing(run):
    write_report(run)
    page = run.store.path("report.html").read_text()
    sources = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"' >)]+)""", page)
    assert sources and all(source.startswith("data:image/png;base64,iVBOR") for source in sources)
    assert "![reward curve](data:image/png;base64,iVBOR" in report_in_one(run)
    assert "<table>" in page and "<th" in page and "prefers-color-scheme: dark" in page
    assert re.findall(r"<h1>(.*)</h1>", page) == ["<code>r</code>: stopped, step 4 of 9"]
    with console.capture() as shown:
        show_run(summarize(run))
    assert f"{run.store.root.absolute()}/report.html" in shown.get()


def shown_on_a_terminal(run):
    with console.capture() as shown:
        show_run(summarize(run))
    return shown.get()


def test_the_summary_of_a_run_without_anything_to_learn_from_says_so(run):
    """Also of one that is too short for the warning that looks at ten steps."""
    rows = [{**row, "frac_reward_zero_std": 1.0} for row in run.metrics()]
    run.logs.replace("metrics.jsonl", rows)
    assert "nothing to learn from" not in shown_on_a_terminal(run), "it is not over"
    run.update(status="completed")
    told = "nothing to learn from: the rewards of each group were equal in every step"
    assert told in shown_on_a_terminal(run) and told in report_markdown(summarize(run))
    noted = "nothing to learn from: the rewards of every group of steps 1 to 10 are equal"
    note(run, new_notice(run, "mortal.reward.flat", "warning", noted, step=10))
    assert shown_on_a_terminal(run).count("nothing to learn from") == 1, "it is said once"
    run.logs.replace("metrics.jsonl", [*rows[:-1], {**rows[-1], "frac_reward_zero_std": 0.5}])
    assert noted in " ".join(shown_on_a_terminal(run).split())


def test_the_summary_repeats_warnings_and_names_an_unchanged_model(run):
    note(run, new_notice(run, "mortal.reward.flat", "warning", "all are equal", step=3))
    note(run, new_notice(run, "mortal.run.resumed", "news", "continued", step=3))
    own = ModelFile(sha256="ab" * 32, num_bytes=1, changed_ns=0)
    run.info = replace(run.info, model_files={"config.json": own, "model.safetensors": own})
    final = FinalModel(
        path="final",
        sha256="cd" * 32,
        weights_sha256=own.sha256,
        merged_path=None,
        merged_sha256=None,
    )
    run.update(final=final)
    shown = shown_on_a_terminal(run)
    assert "  warning      all are equal\n" in shown and "continued" not in shown
    assert "/final  (equal to the starting model)" in shown
    run.update(final=replace(final, weights_sha256="ef" * 32))
    assert "equal to the starting model" not in shown_on_a_terminal(run)


def test_an_evaluation_that_scored_nothing_hides_no_other(run):
    rows = [{"step": 0, "a": 0.1, "reward": 0.1}, {"step": 2, "a": 0.9, "reward": 0.9}, {"step": 4}]
    report = report_markdown(summarize(run), evaluations=rows)
    assert "| score | first, step 0 | best, step 2 | last, step 4 |" in report
    assert "| `reward` | 0.100 | 0.900 | - |" in report


def test_a_run_that_has_done_nothing_has_a_report(tmp_path):
    run = Run(RunStore(tmp_path / "run"), RunConfig(), run_info(tmp_path))
    run.update(status="created")
    assert summarize(run).report is None
    write_report(run)
    assert "step 0 of 9" in run.store.path("report.md").read_text()
    assert not run.store.path("reward_curve.png").exists()


@pytest.mark.parametrize(
    ("checkpoints", "best", "proposed"),
    [([], None, None), ([9], 9, None), ([2, 4, 9], None, 4), ([2, 4, 9], 2, 2), ([4, 9], 9, 4)],
)
def test_the_fork_that_is_proposed_has_steps_ahead(run, checkpoints, best, proposed):
    """A fork at the last of a run's nine steps would have none."""
    summary = dataclasses.replace(summarize(run), checkpoints=checkpoints, best_step=best)
    report = report_markdown(summary)
    steps = re.findall(r"mortal fork .* --at-step (\d+)", report)
    assert steps == ([] if proposed is None else [str(proposed)])


def test_a_run_that_goes_on_says_for_how_long(run):
    run.update(status="running", error=None, pace_s=120.0)
    run.acquire()
    report = report_markdown(summarize(run))
    run.release()
    assert "· 10 min to go" in report and "mortal stop r" in report


def test_a_run_that_nobody_drives_says_how_it_goes_on(run):
    command = f"mortal resume run --runs-dir {run.store.root.parent}"
    assert f"Continue with: `{command}`" in report_markdown(summarize(run))
    run.update(status="completed", error=None)
    assert "Continue with" not in report_markdown(summarize(run))


def test_a_price_stands_beside_each_stage(run):
    row = {"step": 1, "stage": "generate", "kind": "useful", "dollars": 1.5}
    run.store.path("costs.jsonl").write_text(f"{row}\n".replace("'", '"'))
    report = report_markdown(summarize(run))
    assert "$1.50, estimated" in report
    assert "60.0 % | 0.40 s | $1.50 | ████████████ |" in report
    assert "| `reward: a` | 4 | 0.01 s | 2.0 ms | 0.2 % | 0.00 s |  | ▏ |" in report


@pytest.mark.parametrize("text", NASTY)
def test_what_the_model_wrote_stays_text(run, text):
    samples = [sample(text), sample(text, "masked")]
    page = report_html("r", report_markdown(summarize(run), samples=samples))
    body = page.partition("<body>")[2]
    tags = set(re.findall(r"<(\w+)", body))
    assert tags <= {"h1", "h2", "h3", "p", "code", "pre", "table", "thead", "tbody", "tr", "th"} | {
        "td",
        "ul",
        "li",
        "strong",
    }
    plain = report_html("r", report_markdown(summarize(run), samples=[sample("x")] * 2))
    for tag in ("<h1>", "<h2>", "<h3>", "<pre>", "<table>", "<p>"):
        assert page.count(tag) == plain.count(tag), f"{tag} came from the completion"


@pytest.mark.parametrize("text", NASTY)
def test_fenced_text_comes_out_as_it_went_in(text):
    blocks = [token for token in MarkdownIt().parse(fenced(text)) if token.type != "inline"]
    assert [block.type for block in blocks] == ["fence"]
    shown = text.replace("\x1b", "\\x1b").replace("\ud800", "\\ud800")
    assert blocks[0].content == (f"{shown}\n" if shown else "\n")


@pytest.mark.parametrize("text", ["a", "`", "``a`b``", "a|b", "<b>", "a\nb", "*x*"])
def test_code_in_a_table_comes_out_as_it_went_in(text):
    render = MarkdownIt("commonmark").enable("table").render
    row = re.findall(r"<td.*?>(.*)</td>", render(table(["x"], [[code(text)]], "l")))
    assert row == [f"<code>{html.escape(text.replace(chr(10), ' '), quote=False)}</code>"]


def test_long_text_keeps_its_beginning_and_its_end():
    lines = fenced("\n".join(f"line {n}" for n in range(100)))
    assert "line 0\n" in lines and "[... 70 lines ...]" in lines and "line 99\n" in lines
    words = fenced(f"begin {'x' * 5000} end")
    assert "begin" in words and "end\n" in words and len(words) < 1400


def test_a_bar_is_as_long_as_its_share():
    assert [len(bar(share)) for share in (0.0, 0.001, 0.5, 1.0)] == [0, 1, 10, 20]


def test_held_out_rows_are_shown_as_they_were_before_training_as_well(run, capsys):
    """Of scored problems, a line tells the gain; of rows, nothing else would."""
    assert "before" not in shown_on_a_terminal(run)
    judged = [
        {"step": 0, "loss": 0.694, "accuracy": 0.42, "margin": 0.1},
        {"step": 4, "loss": 0.319, "accuracy": 0.925, "margin": 3.0},
    ]
    run.logs.replace("evaluations.jsonl", judged[:1])
    run.update(evaluation=evaluation(**judged[0]))
    assert "before" not in shown_on_a_terminal(run), "there is no later one"
    run.logs.replace("evaluations.jsonl", judged)
    run.update(evaluation=evaluation(**judged[1]))
    text = shown_on_a_terminal(run)
    assert "held-out     loss 0.319, accuracy 0.925  (after step 4)" in text
    assert "before       loss 0.694, accuracy 0.420  (after step 0)" in text
    print_json(summarize(run))
    found = json.loads(capsys.readouterr().out)
    assert {"step": found["first_eval_step"], **found["first_eval"]} == judged[0]


def test_of_rows_the_report_says_how_many_were_trained_on_and_of_no_tokens_that_were_sampled(run):
    assert "4,000 tokens sampled for training" in report_markdown(summarize(run))
    learned = [{"reward": None, "loss": 0.5, "num_prepared_rows": 1200}] * 2
    rows = [{"step": step, **row} for step, row in enumerate(learned, start=1)]
    run.logs.replace("metrics.jsonl", rows)
    text = report_markdown(summarize(run), metrics=rows)
    assert "2,400 rows trained on" in text and "tokens sampled" not in text


def test_a_chart_of_losses_has_no_rewards_on_its_scale(run):
    """As where a teacher is learned from, and held-out problems are scored."""
    run.update(evaluation=evaluation(4, reward=0.5))
    assert "o held-out problems" in shown_on_a_terminal(run)
    rows = [{"step": n, "reward": None, "loss": 9.0, "num_unscored": 4} for n in range(1, 5)]
    run.logs.replace("metrics.jsonl", rows)
    text = shown_on_a_terminal(run)
    assert "9.000 │" in text and "o held-out" not in text


def evaluation(step, **metrics):
    timing = StageTiming(stage="evaluate", step=step)
    return Evaluation(step=step, num_problems=2, metrics=metrics, timing=timing)


def test_a_selection_has_what_it_sampled_beside_what_is_trained_on(run):
    of = {"num_sampled_completions": 40, "num_kept_groups": 8}
    shares = {"differing": 0.5, "solved": 0.25, "unsolved": 0.25, "masked": 0.0}
    rows = [
        {**of, "selection/rounds": 2 + step % 2}
        | {f"selection/{name}": share for name, share in shares.items()}
        for step in range(4)
    ]
    text = report_markdown(summarize(run), metrics=rows)
    assert "A step sampled 40 completions in 2.5 rounds and trained on 8.0 groups" in text
    assert "| differ | 50 % | ██████████ |" in text
    assert "## Selection" not in report_markdown(summarize(run), metrics=run.metrics())
