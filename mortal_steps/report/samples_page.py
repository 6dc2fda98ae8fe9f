"""Completions of some steps as one page of HTML, for a browser: it loads nothing and runs nothing.

All text is escaped, and the page's policy allows no script. A step is chosen by its link: only the
section that the address names is shown, and without a name the last one.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mortal_steps.errors import ConfigError
from mortal_steps.report.page import PAGE
from mortal_steps.report.printable import printable
from mortal_steps.report.samples import KINDS, Kind, Sample, samples_of, told_steps
from mortal_steps.report.units import number
from mortal_steps.runs.run import Run
from mortal_steps.scores import reward_weights
from mortal_steps.store.files import write_atomically

MOST_STEPS = 12
"""Steps of a page that is asked for none in particular."""

HEADINGS: Mapping[Kind, str] = {
    "best": "Highest reward",
    "worst": "Lowest reward",
    "masked": "Without a reward",
}

STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #f3f5f7; --mute: #59636e;
        --best: #1a7f37; --worst: #9a6700; --masked: #cf222e; --here: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #161b22; --mute: #9198a1;
          --best: #3fb950; --worst: #d29922; --masked: #f85149; --here: #4493f8; }
  body { background: #0d1117; color: #e6edf3; }
}
body { max-width: 60rem; margin: 0 auto; padding: 0 1rem 4rem;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 1.5rem 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
nav { position: sticky; top: 0; padding: .5rem 0; background: Canvas;
      border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .25rem; }
@media (prefers-color-scheme: dark) { nav { background: #0d1117; } }
nav span { color: var(--mute); padding: .1rem .5rem .1rem 0; }
nav a { padding: .1rem .6rem; border-radius: 6px; text-decoration: none; color: inherit;
        border: 1px solid var(--line); font-variant-numeric: tabular-nums; }
section { display: none; scroll-margin-top: 10rem; }
section:target, body:not(:has(section:target)) section.last { display: block; }
article { border: 1px solid var(--line); border-left: 4px solid var(--kind); border-radius: 6px;
          padding: .75rem 1rem; margin: .75rem 0; }
.best { --kind: var(--best); } .worst { --kind: var(--worst); } .masked { --kind: var(--masked); }
header { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: baseline; }
header b { font-size: 1.2rem; color: var(--kind); font-variant-numeric: tabular-nums; }
header span, .mute { color: var(--mute); }
.why { color: var(--masked); margin: .25rem 0; overflow-wrap: anywhere; }
h4 { font-size: .8rem; font-weight: 600; color: var(--mute); margin: .6rem 0 .15rem; }
pre { font: .875rem/1.45 ui-monospace, monospace; background: var(--soft); border-radius: 6px;
      margin: 0; padding: .5rem .75rem; white-space: pre-wrap; overflow-wrap: anywhere;
      max-height: 24rem; overflow-y: auto; }
ul { list-style: none; padding: 0; margin: .35rem 0 0; display: flex; flex-wrap: wrap;
     gap: .25rem .5rem; }
li { background: var(--soft); border-radius: 6px; padding: .05rem .5rem; font-size: .875rem;
     font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
"""


def write_page(
    path: Path, run: Run, most: int, *, step: int | None = None, kinds: Sequence[Kind] = KINDS
) -> None:
    """Write the `most` completions of each kind of a step, or of up to 12 steps.

    Raises what `samples_of` does, and `ConfigError` for a file that cannot be written.
    """
    steps = told_steps(run, MOST_STEPS) if step is None else [step]
    chosen = {each: samples_of(run, most, step=each, kinds=kinds) for each in steps}
    if not chosen:
        samples_of(run, most)  # which says why there are none
    text = samples_html(run.info.run_id, chosen, reward_weights(run.config.rewards))
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise ConfigError(f"--html {path} cannot be written: {error.strerror}") from None


def samples_html(
    run_id: str, steps: Mapping[int, Sequence[Sample]], weights: Mapping[str, float]
) -> str:
    """The page; `weights`: of each reward function by name."""
    body = [f"<h1>Completions of {_text(run_id)}</h1>", _chooser(list(steps))]
    last = max(steps, default=None)
    for step, samples in steps.items():
        shown = ' class="last"' if step == last else ""
        body.append(f'<section id="step-{step}"{shown}>')
        body.extend(_section(step, samples, weights))
        body.append("</section>")
    title = _text(f"{run_id}: completions")
    return PAGE.format(title=title, style=STYLE + _marks(list(steps)), body="\n".join(body) + "\n")


def _chooser(steps: Sequence[int]) -> str:
    if len(steps) < 2:
        return ""
    links = "".join(f'<a href="#step-{step}">{step}</a>' for step in steps)
    return f"<nav><span>step</span>{links}</nav>"


def _marks(steps: Sequence[int]) -> str:
    """Marks the link of the step that is shown."""
    chosen = [f'body:has(#step-{step}:target) a[href="#step-{step}"]' for step in steps]
    chosen.append("body:not(:has(section:target)) nav a:last-child")
    return f"{', '.join(chosen)} {{ color: var(--here); border-color: var(--here); }}\n"


def _section(step: int, samples: Sequence[Sample], weights: Mapping[str, float]) -> Iterator[str]:
    for kind in KINDS:
        found = [sample for sample in samples if sample.kind == kind]
        if found:
            yield f"<h2>Step {step}: {HEADINGS[kind].lower()}</h2>"
            for sample in found:
                yield from _card(sample, weights)
    if not samples:
        yield f'<h2>Step {step}</h2><p class="mute">None of its completions is of this kind.</p>'


def _card(sample: Sample, weights: Mapping[str, float]) -> Iterator[str]:
    yield f'<article class="{sample.kind}">'
    reward = "masked" if sample.why else number(sample.reward)
    relative = ""
    if sample.relative is not None:
        relative = f"<span>{sample.relative:+.3f} from the mean of its group</span>"
    yield f"<header><b>{reward}</b>{relative}<span>{_text(sample.problem_id)}</span></header>"
    for why in sample.why:
        yield f'<p class="why">{_text(why)}</p>'
    if sample.reward is None and not sample.why:
        yield '<p class="why">every function abstained</p>'
    yield "<ul>"
    for name, score in sample.rewards.items():
        weight = weights.get(name, 1.0)
        weighted = "" if weight == 1 else f' <span class="mute">× {weight:g}</span>'  # noqa: RUF001
        yield f"<li>{_text(name)} <b>{number(score)}</b>{weighted}</li>"
    yield "</ul>"
    if isinstance(sample.prompt, str):
        yield from _block("prompt", sample.prompt)
    else:
        for message in sample.prompt:
            yield from _block(str(message.get("role")), str(message.get("content")))
    yield from _block("completion", sample.text)
    yield "</article>"


def _block(name: str, text: str) -> Iterator[str]:
    yield f"<h4>{_text(name)}</h4>"
    # The parser drops a line break right behind <pre>.
    yield f"<pre>\n{_text(text)}</pre>"


def _text(text: str) -> str:
    """Text as it is: no markup, no control characters."""
    return html.escape(printable(text.replace("\t", "    ")))
