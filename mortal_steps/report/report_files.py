"""The report of a run in its directory: reward_curve.png, report.md, report.html.

All of it is derived: it is written again at every beginning, in between, and at the end, whatever
became of it meanwhile. So one that cannot be written is a line in the log.
"""

import base64
import html
import logging
import os
import threading

from markdown_it import MarkdownIt

from mortal_steps.errors import DataError, MortalError, StoreError
from mortal_steps.report.curve import reward_curve
from mortal_steps.report.held_out import HeldOutScores
from mortal_steps.report.printable import printable
from mortal_steps.report.run_report import report_markdown, shown_evaluations
from mortal_steps.report.samples import Sample, samples_of
from mortal_steps.report.summary import PAGE as PAGE_FILE
from mortal_steps.report.summary import summarize
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import Run
from mortal_steps.store.files import write_atomically

logger = logging.getLogger(__name__)

PICTURE = "reward_curve.png"
MARKDOWN = "report.md"

_writing = threading.Lock()
"""One report is written at a time, so that the one at the end of a run is the last."""


def write_report(run: Run) -> None:
    """Write all that is known of the run; errors are logged, as the run is more important."""
    with _writing:
        try:
            _write(run)
        except (StoreError, OSError) as error:
            logger.warning("the report is not written: %s", error)


def report_is_behind(run: Run) -> bool:
    """Return whether the run has gone on since its report was written, and it can be written."""
    page, manifest = run.store.path(PAGE_FILE), run.store.path(MANIFEST_FILE)
    if not os.access(run.store.root, os.W_OK):
        return False
    return not page.exists() or page.stat().st_mtime_ns < manifest.stat().st_mtime_ns


def _write(run: Run) -> None:
    metrics = run.metrics()
    evaluations = run.logs.read(EVALUATIONS)
    picture = reward_curve(run.info.run_id, metrics, evaluations) if metrics else None
    held_out, shown = HeldOutScores(run), shown_evaluations(evaluations)
    markdown = report_markdown(
        summarize(run),
        metrics=metrics,
        evaluations=evaluations,
        intervals={row["step"]: held_out.intervals(row["step"]) for _, row in shown},
        notices=read_notices(run.store),
        samples=_samples(run),
        picture=PICTURE if picture is not None else None,
    )
    page = report_html(printable(run.info.run_id), markdown)
    if picture is not None:
        write_atomically(run.store.path(PICTURE), picture)
        page = page.replace(f'src="{PICTURE}"', f'src="{_as_url(picture)}"', 1)
    write_atomically(run.store.path(MARKDOWN), markdown.encode())
    write_atomically(run.store.path(PAGE_FILE), page.encode())


def report_in_one(run: Run) -> str:
    """Return the report as it was written last, the picture in it, for where no file lies beside
    it. Raises `OSError` before there is one."""
    picture = run.store.path(PICTURE)
    markdown = run.store.path(MARKDOWN).read_text(encoding="utf-8")
    if not picture.exists():
        return markdown
    return markdown.replace(f"]({PICTURE})", f"]({_as_url(picture.read_bytes())})", 1)


def _as_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def _samples(run: Run) -> list[Sample]:
    """Return a completion of each kind; none before a step, of a run that learns from rows, if
    records are damaged, or if they are not here, as those of a run on Modal."""
    if run.manifest.step == run.info.first_step or run.info.prepared_rows is not None:
        return []
    try:
        return samples_of(run, 1)
    except DataError as error:
        logger.info("the report shows no completions: %s", error)
        return []
    except MortalError as error:
        logger.warning("the report shows no completions: %s", error)
        return []


STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #f3f5f7; --bar: #08519c; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #1b2128; --bar: #79b8ff; }
  body { background: #0d1117; color: #e6edf3; }
}
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; } h3 { font-size: 1rem; }
h1, h2 { border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
img { max-width: 100%; border-radius: 6px; }
table { border-collapse: collapse; display: block; overflow-x: auto;
        font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
td[style*="left"]:last-child { color: var(--bar); }
code, pre { font: .875em/1.45 ui-monospace, monospace; background: var(--soft); border-radius: 6px;
            overflow-wrap: anywhere; }
code { padding: .1em .35em; } pre { padding: .75rem; white-space: pre-wrap; }
pre code { padding: 0; font-size: 1em; }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}</body>
</html>
"""


def report_html(title: str, markdown: str) -> str:
    """Return a self-contained page. HTML in the Markdown stays text, and no link runs a script."""
    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    return PAGE.format(title=html.escape(title), style=STYLE, body=render(markdown))
