"""The gate on a real server: suspended for a person, killed while it decides, passed again."""

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow_async
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending

from mortal_flows import promote as flow_module
from mortal_steps.errors import DiskError
from mortal_steps.promotion.comparison import by_threshold
from mortal_steps.promotion.gate import Gate
from mortal_steps.registry.registry import Registry
from tests.support.bare_flow import InProcess, Killed, one_thread
from tests.support.promotion import train_two
from tests.support.registry import decide


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return train_two(tmp_path_factory.mktemp("project"))


@pytest.fixture
def at_work(server, project, monkeypatch):
    """In the project's folder, against the session's server, with workers in this process."""
    monkeypatch.chdir(project)
    monkeypatch.setattr(flow_module, "Gate", partial(Gate, local=InProcess))
    with one_thread(), temporary_settings({PREFECT_API_URL: server.api_url}):
        yield


async def begin(client, **parameters) -> UUID:
    """A flow run of a deployment, scheduled."""
    flow_id = await client.create_flow(flow_module.promote)
    deployment = await client.create_deployment(flow_id=flow_id, name="gate-of-a-test")
    made = await client.create_flow_run_from_deployment(deployment, parameters=parameters)
    return made.id


async def attempt(client, flow_run_id: UUID) -> State:
    """What a worker lets a process do: run the flow from its top. The state that it leaves."""
    await client.set_flow_run_state(flow_run_id, Pending(), force=True)
    flow_run = await client.read_flow_run(flow_run_id)
    with contextlib.suppress(Pause):  # on which Prefect's process exits
        await run_flow_async(
            flow_module.promote,
            flow_run=flow_run,
            parameters=dict(flow_run.parameters),
            return_type="state",
        )
    return (await client.read_flow_run(flow_run_id)).state


async def answer(client, flow_run_id: UUID, **said: str) -> None:
    await client.resume_flow_run(flow_run_id, run_input=said)


async def page(client, name: str) -> str:
    """The comparison that the flow run shows."""
    wanted = {"artifacts": {"key": {"any_": [f"promotion-{name}"]}}, "sort": "UPDATED_DESC"}
    found = await client.request("POST", "/artifacts/latest/filter", json=wanted)
    return found.json()[0]["data"]


def judged_for(registry):
    """The requests that models were judged for: each goes on with its own judgements."""
    files = registry.store.path("judged").glob("*/request.json")
    return {registry.store.find_record(f"judged/{f.parent.name}/{f.name}", str)[1] for f in files}


def test_a_person_approves_a_model_while_nothing_runs(at_work, project, monkeypatch):
    async def scenario():
        async with get_client() as client:
            flow_run = await begin(client, run_id="first", name="tiny")
            waiting = await attempt(client, flow_run)
            assert (waiting.type, waiting.name) == ("PAUSED", "Suspended")
            assert not registry.link.is_symlink()
            assert "Waits for approval" in await page(client, "tiny")
            assert judged_for(registry) == {str(flow_run)}
            await answer(client, flow_run, decision="promote", by="Ada", why="reads well")

            with monkeypatch.context() as patch:  # killed once the decision is written
                patch.setattr(Registry, "_follow", killed)
                with pytest.raises(Killed):
                    await attempt(client, flow_run)
            assert not registry.link.is_symlink()
            ended = await attempt(client, flow_run)
            assert ended.type == "COMPLETED"
            assert ended.message.startswith("promoted first-")
            assert "by Ada: reads well" in ended.message
            assert [made.by for made in registry.history()] == ["Ada"]
            assert registry.link.readlink().name.startswith("first-")

            second = await begin(client, run_id="second", name="tiny", approval="threshold")
            ended = await attempt(client, second)
            assert ended.message.startswith(f"{registry.history()[-1].action} second-")
            assert "| `lottery` |" in await page(client, "tiny")

    registry = Registry(project / "models", "tiny")
    asyncio.run(scenario())


def test_a_gate_that_another_one_overtakes_or_a_full_disk_ends_is_not_failed(at_work, monkeypatch):
    def overtaken(comparison, *given):
        candidate = comparison.candidate
        decide(registry, "promoted", candidate, before=None, by="another gate", why="it was faster")
        return by_threshold(comparison, *given)

    def full(gate):
        raise DiskError("no space left for the model")

    async def scenario():
        async with get_client() as client:
            given = {"run_id": "first", "name": "other", "approval": "threshold"}
            flow_run = await begin(client, **given)
            with monkeypatch.context() as patch:
                patch.setattr(Gate, "bring_in", full)
                ended = await attempt(client, flow_run)
            assert (ended.type, ended.message) == ("CRASHED", "no space left for the model")
            with monkeypatch.context() as patch:
                patch.setattr(flow_module, "by_threshold", overtaken)
                ended = await attempt(client, flow_run)
            assert ended.message.endswith("is in production already")
            assert [made.by for made in registry.history()] == ["another gate"]

    registry = Registry(Path("models").absolute(), "other")
    asyncio.run(scenario())


def killed(registry):
    raise Killed
