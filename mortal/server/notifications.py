"""Makes automations that send a run's notices through notification blocks of the Prefect server.

There are two automations for each block. The trigger of one fires for every event of a notice, at
once. The other one tells of what no process of a run can tell: that it is down and does not come
back, or waits for a person.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import (
    AutomationCore,
    CompoundTrigger,
    EventTrigger,
    Posture,
)
from prefect.exceptions import ObjectNotFound

from mortal.server.api import delete_automations, make_automation
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


def notify(blocks: Sequence[str], levels: Collection[str] = ALL) -> Iterator[str]:
    """Send notices of these levels through these blocks, such as `slack-webhook/ops`, and no
    others; yields a line for each. Raises `ServerError`, changing nothing, for an unknown block."""
    with get_client(sync_client=True) as client:
        ids = {block: _id_of(client, block) for block in blocks}
        told = {PREFIX: ", ".join(levels), DOWN: f"down for {DOWN_S:g} s, or a promotion that asks"}
        names = list[str]()
        for block, block_id in ids.items():
            sending = _sending(block, block_id, levels)
            for automation in (sending, _telling_of_the_down(block, block_id)):
                done = "made" if make_automation(client, automation) else "kept"
                yield f"{done} {automation.name!r}: {told[automation.name.removesuffix(block)]}"
                names.append(automation.name)
        delete_automations(client, (PREFIX, DOWN), but=names)  # last: an error before loses none


def _id_of(client: SyncPrefectClient, block: str) -> UUID:
    """Return the id of a notification block, `TYPE/NAME`. Raises `ServerError` if there is none."""
    kind, _, name = block.partition("/")
    try:
        found = client.read_block_document_by_name(name, kind) if name else None
    except ObjectNotFound:
        found = None
    schema = found.block_schema if found is not None else None
    if found is None or schema is None or "notify" not in schema.capabilities:
        raise ServerError(
            f"--notify {block}: {client.api_url} has no notification block of this name. Write "
            f"TYPE/NAME; `prefect block ls` lists those that there are, and `prefect block create "
            f"{kind or 'TYPE'}` shows the page on which you can make one"
        )
    return found.id


def _sending(block: str, block_id: UUID, levels: Collection[str]) -> AutomationCore:
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


def _telling_of_the_down(block: str, block_id: UUID) -> AutomationCore:
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
