"""Whom notices go to: an HTTP server that keeps each with its time, and shows them as a page."""

import html
import time
from dataclasses import dataclass

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.settings import PREFECT_API_URL, temporary_settings

from benchmarks.nights.answering import Service

PAGE = """<!doctype html><meta charset="utf-8"><title>Notices</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; background: #f2f3f5; margin: 0 }}
 main {{ width: 760px; padding: 1px 24px 10px }} h1 {{ font-size: 20px }}
 article {{ background: #fff; border-left: 5px solid #888; border-radius: 6px; margin: 0 0 14px;
            padding: 10px 16px; box-shadow: 0 1px 2px #0002; overflow-wrap: anywhere }}
 h2 {{ font-size: 17px; margin: 0 }} time {{ color: #777; font-size: 13px }}
 p {{ margin: 6px 0 0 }}
</style>
<main><h1>Received at {address}</h1>
{notices}
</main>
"""
ARTICLE = "<article><h2>{subject}</h2><time>{at}</time>{body}</article>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """One notice."""

    at: float
    """Seconds since the epoch."""
    subject: str
    body: str


class Receiver(Service):
    """Takes POSTs of `{subject, body}`; GET shows them."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        super().__init__(self._received_or_shown)

    def _received_or_shown(self, said: dict[str, str] | None) -> str:
        if said is None:
            return self.page()
        self.received.append(Received(at=time.time(), **said))
        return ""

    def make_block(self, api_url: str, name: str) -> str:
        """Return a notification block of the server's that posts here; what `--notify` calls it."""
        with temporary_settings({PREFECT_API_URL: api_url}):
            template = {"subject": "{{subject}}", "body": "{{body}}"}
            url = f"{self.url}/notices"
            block = CustomWebhookNotificationBlock(name=name, url=url, json_data=template)
            block.save(name, overwrite=True)
        return f"custom-webhook/{name}"

    def page(self) -> str:
        """Return what was received, the newest first."""
        notices = "\n".join(_article(each) for each in reversed(self.received))
        return PAGE.format(address=html.escape(self.url), notices=notices)


def _article(notice: Received) -> str:
    paragraphs = "".join(f"<p>{html.escape(part)}</p>" for part in notice.body.split("\n\n"))
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(notice.at))
    return ARTICLE.format(subject=html.escape(notice.subject), at=at, body=paragraphs)
