"""Makes automations that send a run's notices through notification blocks of the Prefect server.

There are two automations for each block. The trigger of one fires for every event of a notice, at
once. The other one tells of what no process of a run can tell: that it is down and does not come
back, or waits for a person.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import (
    Automation,
    AutomationCore,
    CompoundTrigger,
    EventTrigger,
    Posture,
)

from mortal.server.recovery import (
    ANY_DEPLOYED_RUN,
    FLOWS,
    NOT_EXPECTED_TO_LIVE,
    ONE_RUN,
    events,
    nothing_after,
)
from mortal_steps.errors import ServerError
from mortal_tasks.notices import LEVEL, RESOURCE

PREFIX = "mortal: notices through "
"""The names of these automations begin with this text."""
EVENTS = "mortal.*"
ALL = ("news", "warning", "failure")
WITHOUT_NEWS = ("warning", "failure")
SUBJECT = "{{ event.payload.subject }}"
BODY = "{{ event.payload.body }}"
DOWN = "mortal: runs that need somebody, through "
"""The names of the others begin so."""
DOWN_S = 600.0
"""Seconds for which a run is down, with nothing done about it, before somebody is told."""
DOWN_SUBJECT = "{{ flow_run.name }} is {{ flow_run.state.name }} and needs somebody"
DOWN_BODY = """{{ flow_run.state.message }}

What to do: a run that is Crashed has no start left, or `mortal automate` does not watch it: \
`prefect flow-run retry {{ flow_run.id }}`. AwaitingRetry waits for a worker, or for other runs of \
its pool. A promotion that is Suspended waits for Resume, on its page.

{{ flow_run|ui_url or '' }}"""
PAGE = 200


def notify(blocks: Sequence[str], levels: Collection[str] = ALL) -> Iterator[str]:
    """Send notices of these levels through these blocks, such as `slack-webhook/ops`, and through
    no others. Yields a line for each block.

    Raises `ServerError`, and changes nothing, if the server has no such notification block.
    """
    with get_client(sync_client=True) as client:
        known = _blocks(client)
        for block in blocks:
            if block not in known:
                raise ServerError(_unknown(client, block, known))
        _remove(client)
        for block in dict.fromkeys(blocks):
            client.create_automation(_sending(block, known[block], levels))
            yield f"made {PREFIX + block!r}: {', '.join(levels)}"
            client.create_automation(_telling_of_the_down(block, known[block]))
            yield f"made {DOWN + block!r}: down for {DOWN_S:g} s, or a promotion that asks"


def remove() -> Iterator[str]:
    """Remove these automations. Yields a line for each one that existed."""
    with get_client(sync_client=True) as client:
        for automation in _remove(client):
            yield f"removed {automation.name!r}"


def _remove(client: SyncPrefectClient) -> list[Automation]:
    found = [each for each in _automations(client) if each.name.startswith((PREFIX, DOWN))]
    for automation in found:
        client.delete_automation(automation.id)
    return found


def _automations(client: SyncPrefectClient) -> list[Automation]:
    found: list[Automation] = []
    while page := client.read_automations(limit=PAGE, offset=len(found)):
        found += page
    return found


def _blocks(client: SyncPrefectClient) -> dict[str, Any]:
    """`TYPE/NAME` of each notification block that has a name -> its id."""
    found: dict[str, Any] = {}
    offset = 0
    wanted = {"block_schemas": {"block_capabilities": {"all_": ["notify"]}}}
    while page := client.request(
        "POST", "/block_documents/filter", json={**wanted, "limit": PAGE, "offset": offset}
    ).json():
        offset += len(page)
        for block in page:
            if block["name"] and not block["is_anonymous"]:
                found[f"{block['block_type']['slug']}/{block['name']}"] = block["id"]
    return found


def _unknown(client: SyncPrefectClient, block: str, known: Collection[str]) -> str:
    kind, _, name = block.partition("/")
    there = ", ".join(sorted(known)) or "none"
    return (
        f"--notify {block}: {client.api_url} has no notification block of this name; it has: "
        f"{there}. Write TYPE/NAME. `prefect block create {kind or 'TYPE'}` shows the page on "
        f"which you can make one named {name or 'NAME'}; `prefect block type ls` lists the types"
    )


def _sending(block: str, block_id: Any, levels: Collection[str]) -> AutomationCore:
    return AutomationCore(
        name=PREFIX + block,
        description="`mortal automate --notify` made this.",
        trigger=EventTrigger(
            match={"prefect.resource.id": f"{RESOURCE}.*", LEVEL: list(levels)},
            expect={EVENTS},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[SendNotification(block_document_id=block_id, subject=SUBJECT, body=BODY)],
    )


def _telling_of_the_down(block: str, block_id: Any) -> AutomationCore:
    down = events("Crashed", "Recovering", "AwaitingRetry")
    promotion = {"prefect.resource.role": "flow", "prefect.resource.name": FLOWS[0]}
    asks = EventTrigger(
        **{**ONE_RUN, "match_related": [promotion]},
        expect=events("Suspended"),
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )
    return AutomationCore(
        name=DOWN + block,
        description=f"`mortal automate --notify` made this for {' and '.join(FLOWS)}.",
        trigger=CompoundTrigger(
            triggers=[asks, nothing_after(down, NOT_EXPECTED_TO_LIVE, DOWN_S, ANY_DEPLOYED_RUN)],
            require="any",
            within=None,
        ),
        actions=[
            SendNotification(block_document_id=block_id, subject=DOWN_SUBJECT, body=DOWN_BODY)
        ],
    )
