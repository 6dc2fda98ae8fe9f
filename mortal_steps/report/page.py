"""A report's Markdown as one page of HTML, which loads nothing."""

from __future__ import annotations

import html

from markdown_it import MarkdownIt

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
    """A self-contained page. HTML in the Markdown stays text, and no link runs a script."""
    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    return PAGE.format(title=html.escape(title), style=STYLE, body=render(markdown))
