"""Which pages are taken, and how: one entry a picture."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

SETTLED_MS = 6000
"""Prefect's pages load, draw and then move their graphs into place."""
ZOOM_CLICKS = 3
NUM_COLOURS = 128
SIZE = ViewportSize(width=1400, height=900)


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """What there is to look at."""

    ui_url: str
    flow_run_id: str
    segment_id: str
    """The flow run of a segment of steps in the middle."""
    deployment_id: str
    report_id: str
    """The artifact with the run's report."""
    run_dir: Path
    receiver_url: str
    """Shows the notices that were received."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A page of Prefect's UI, or a file."""

    name: str
    address: Callable[[Night], str]
    before: Callable[[Page], None] | None = None
    """What to click once the page is there."""
    whole: bool = False
    """As long as the page is, not as high as a window."""
    part: str | None = None
    """A CSS selector of what is taken of the page."""


def _zoom_in(page: Page) -> None:
    """Turn the wheel over the left end of the graph, where the first steps are, until bars have
    their names."""
    page.mouse.move(320, 240)
    for _ in range(ZOOM_CLICKS):
        page.mouse.wheel(0, -240)
        page.wait_for_timeout(150)


PICTURES = (
    Picture(name="run", address=lambda n: f"{n.ui_url}/v2/runs/flow-run/{n.flow_run_id}"),
    Picture(
        name="segment",
        address=lambda n: f"{n.ui_url}/v2/runs/flow-run/{n.segment_id}",
        before=_zoom_in,
    ),
    Picture(
        name="stage",
        address=lambda n: f"{n.ui_url}/v2/runs?tab=task-runs&task-run-search=train_step",
    ),
    Picture(name="report", address=lambda n: f"{n.ui_url}/v2/artifacts/artifact/{n.report_id}"),
    Picture(name="deployments", address=lambda n: f"{n.ui_url}/v2/deployments"),
    Picture(
        name="run-form",
        address=lambda n: f"{n.ui_url}/v2/deployments/deployment/{n.deployment_id}/run",
    ),
    Picture(name="automations", address=lambda n: f"{n.ui_url}/v2/automations"),
    Picture(name="notification", address=lambda n: n.receiver_url, part="main"),
    Picture(name="report-html", address=lambda n: (n.run_dir / "report.html").as_uri(), whole=True),
)


def take(night: Night, chromium: str, output: Path) -> Iterator[Path]:
    """Yield the pictures, each as soon as it is written."""
    output.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        for picture in PICTURES:
            page.goto(picture.address(night))
            page.wait_for_timeout(SETTLED_MS)
            if picture.before is not None:
                picture.before(page)
                page.wait_for_timeout(SETTLED_MS)
            path = output / f"{picture.name}.png"
            path.write_bytes(_in_few_colours(_shot(page, picture)))
            yield path
        browser.close()


def _shot(page: Page, picture: Picture) -> bytes:
    if picture.part is not None:
        return page.locator(picture.part).screenshot()
    return page.screenshot(full_page=picture.whole)


def _in_few_colours(picture: bytes) -> bytes:
    """Return the picture at a third of its size."""
    small = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as full:
        full.convert("RGB").quantize(NUM_COLOURS).save(small, format="png", optimize=True)
    return small.getvalue()
