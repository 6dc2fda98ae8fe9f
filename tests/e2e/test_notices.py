"""What a run tells of itself arrives at a webhook, once, through a notification block."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from prefect import Flow, flow
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings
from prefect.states import Crashed, Running, Suspended

from mortal.server import automations, notifications
from mortal_flows.deployed import flow_run_url
from mortal_flows.grpo_train import tell_the_end
from mortal_steps.errors import ServerError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.alerts import Alerts
from mortal_steps.runs.notices import NOTICES, new_notice, note, read_notices, unsent
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_tasks.reporter import reporting
from mortal_tasks.segments import FLOW
from mortal_tasks.server_watch import watch_server
from tests.support.run_info import run_info
from tests.support.webhook import Webhook

BLOCK = "custom-webhook/somebody"


@pytest.fixture
def webhook():
    webhook = Webhook()
    yield webhook
    webhook.close()


@pytest.fixture
def there(server):
    """This process as a client of the session's server."""
    ui_url = server.api_url.removesuffix("/api")
    with temporary_settings({PREFECT_API_URL: server.api_url, PREFECT_UI_URL: ui_url}):
        yield


@flow
async def goes_on(folder: Path, rewards: list[float]) -> str:
    """An attempt of a run that sees these rewards; the page of its flow run."""
    info = replace(run_info(folder), uid=folder.name)
    run = Run(RunStore(folder), RunConfig(), info)
    async with watch_server(60) as server, reporting(run, server) as reporter:
        run.update(status="running", ui_url=flow_run_url())
        alerts = Alerts(run)
        reporter.tell()
        for step, reward in enumerate(rewards, start=1):
            alerts.step({"step": step, "reward": reward})
            if alerts.take():
                reporter.tell()
        run.update(status="stopped")
    return str(run.manifest.ui_url)


@flow
async def finds_it_complete(folder: Path) -> None:
    """An attempt after one that was killed once the run was complete, but before it had told so."""
    run = Run(RunStore(folder), RunConfig(), replace(run_info(folder), uid=folder.name))
    run.update(status="completed", step=9)
    note(run, new_notice(run, "mortal.run.finished", "news", "trained", step=9))
    async with get_client() as client:  # what the killed process has left
        await client.create_flow_run(
            Flow(fn=lambda: None, name=FLOW),
            name="steps 5-8",
            tags=[f"uid:{run.info.uid[:12]}"],
            state=Running(),
        )
        await tell_the_end(run)
        wanted = FlowRunFilter.model_validate({"name": {"any_": ["steps 5-8"]}})
        found = await client.read_flow_runs(flow_run_filter=wanted)
    assert [each.state_name for each in found] == ["Crashed"]


def test_that_a_run_has_finished_is_told_though_its_process_was_killed(there, tmp_path):
    asyncio.run(finds_it_complete(tmp_path))
    assert [each.event for each in read_notices(RunStore(tmp_path))] == ["mortal.run.finished"]
    assert unsent(RunStore(tmp_path)) == []


def goes_away(client, automation):
    raise ConnectionError("the server is away")


def test_a_collapse_arrives_at_a_webhook_once(there, webhook, tmp_path, monkeypatch):
    block = CustomWebhookNotificationBlock(
        name="w", url=webhook.url, json_data={"subject": "{{subject}}", "body": "{{body}}"}
    )
    block.save("somebody", overwrite=True)
    with pytest.raises(ServerError, match="no notification block"):
        list(notifications.notify([BLOCK, "slack-webhook/nobody"]))
    assert list(automations.remove()) == [], "a wrong name changes nothing"
    made = list(notifications.notify([BLOCK]))
    assert list(notifications.notify([BLOCK])) == [line.replace("made", "kept") for line in made]
    with monkeypatch.context() as patched, pytest.raises(ConnectionError):
        patched.setattr(SyncPrefectClient, "create_automation", goes_away)
        list(notifications.notify([BLOCK], notifications.WITHOUT_NEWS))
    collapsing = [0.5] * 20 + [0.0] * 20
    url = asyncio.run(goes_on(tmp_path, collapsing))
    [notice] = webhook.wait_for(1)
    assert notice["subject"] == "r: reward collapsed (step 30 of 9)"
    told, advice, link = notice["body"].split("\n\n")
    assert told == (
        "r, step 30 of 9: the mean training reward of the last 10 steps is 0.000; "
        "it was 0.500 after step 20."
    )
    assert f"`mortal fork {tmp_path} --at-step N`" in advice
    assert link == url
    assert unsent(RunStore(tmp_path)) == []

    asyncio.run(goes_on(tmp_path, collapsing))  # killed, and gone through again
    lines = (tmp_path / NOTICES).read_text().splitlines()
    assert len(lines) == 2, "it was noted once, and told once"
    (tmp_path / NOTICES).write_text(lines[0] + "\n")  # killed before it was known to be told
    asyncio.run(goes_on(tmp_path, []))
    assert unsent(RunStore(tmp_path)) == []
    asyncio.run(goes_on(tmp_path / "another", collapsing))
    received = webhook.wait_for(2)
    assert [str(tmp_path / "another") in one["body"] for one in received] == [False, True]
    assert made[0] == f"made 'mortal: notices through {BLOCK}': news, warning, failure"
    assert len(list(automations.remove())) == len(made) == 2


def test_of_a_run_that_stays_down_and_of_one_that_waits_for_a_person_somebody_is_told(
    there, webhook, monkeypatch
):
    """Their processes are gone, so the server tells."""
    monkeypatch.setattr(notifications, "DOWN_S", 10.0)
    fields = {"subject": "{{subject}}", "body": "{{body}}"}
    CustomWebhookNotificationBlock(name="w", url=webhook.url, json_data=fields).save(
        "somebody", overwrite=True
    )
    list(notifications.notify([BLOCK]))
    with get_client(sync_client=True) as client:

        def flow_run(of, *states):
            flow_id = client.create_flow_from_name(of)
            deployment = client.create_deployment(flow_id=flow_id, name="told-of")
            made = client.create_flow_run_from_deployment(deployment, name=f"{of}/{len(states)}")
            for state in states:
                client.set_flow_run_state(made.id, state, force=True)
            return made

        crashed = Crashed(message="The 5th time.")
        flow_run("grpo-train", Running(), crashed, Running())
        down = flow_run("grpo-train", Running(), crashed)
        asked = flow_run("promote", Running(), Suspended(timeout_seconds=60))
        told = {each["subject"]: each["body"] for each in webhook.wait_for(2)}
        for each in (down, asked):
            client.delete_deployment(each.deployment_id)
    list(automations.remove())
    assert set(told) == {
        f"{down.name} is Crashed and needs somebody",
        f"{asked.name} is Suspended and needs somebody",
    }
    body = told[f"{down.name} is Crashed and needs somebody"]
    assert body.startswith("The 5th time.")
    assert f"prefect flow-run retry {down.id}" in body
    assert body.endswith(f"/runs/flow-run/{down.id}")
