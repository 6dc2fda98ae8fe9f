"""`mortal train` of a recipe: killed in its stages, resumed, and trained again after changes."""

import asyncio
import contextlib
import json
import shutil
from uuid import UUID, uuid4

import httpx
import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow_async
from prefect.logging import disable_run_logger
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending, Running

from mortal_flows.recipe import recipe
from mortal_steps.errors import ConfigError
from mortal_steps.recipes.file import read_recipe
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.record import RESUME_AT
from mortal_steps.recipes.report.view import how_to_go_on
from mortal_tasks.gpu_slots import GPUS, GpuSlots
from mortal_tasks.left_behind import mark_own_task_runs
from mortal_tasks.recipe import UID_TAG, mark_what_was_left
from tests.support.command import Mortal
from tests.support.whole_recipe import (
    digests,
    kill_recipe,
    kill_stage,
    left_running,
    record_of,
    wait_until,
    write_recipe,
)


@pytest.fixture(scope="module")
def undisturbed(server, tmp_path_factory):
    """A project with the recipe, trained to its end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_recipe(folder)
    said = Mortal(folder, server.api_url)("train", "words.toml")
    return folder, said


def test_a_recipe_goes_to_its_end(undisturbed):
    folder, said = undisturbed
    assert "made sft, rm, grpo, gate" in said
    record = record_of(folder)
    assert [each.standing for each in record.stages.values()] == ["complete"] * 4
    models = folder / "models" / "words"
    assert (models / "production").is_symlink()
    [judged] = models.glob("judged/*/request.json")
    assert judged.read_text().splitlines()[1] == f'"{record.stages["gate"].job_id}"'


def test_the_page_of_a_recipe_in_prefect_tells_how_it_ended(undisturbed, server):
    flow_run_id = record_of(undisturbed[0]).ui_url.rpartition("/")[2]
    wanted = {"artifacts": {"flow_run_id": {"any_": [flow_run_id]}, "key": {"like_": "recipe-"}}}
    (page,) = httpx.post(f"{server.api_url}/artifacts/filter", json=wanted, timeout=30).json()
    assert page["description"] == "recipe words: completed"
    assert page["data"].startswith("# words: completed")


def test_no_task_run_of_a_stage_asks_the_server_for_a_place(undisturbed, server):
    """Prefect asks for a concurrency slot for each tag that a task run begins with."""
    uid = f"{UID_TAG}{record_of(undisturbed[0]).uid[:12]}"
    wanted = {"task_runs": {"tags": {"all_": [uid]}}, "limit": 200}
    tagged = httpx.post(f"{server.api_url}/task_runs/filter", json=wanted, timeout=30).json()
    stages = ("get_batch", "train_step", "generate", "reward", "sync_weights", "bring_in")
    assert [each["name"] for each in tagged if each["name"].startswith(stages)] == []
    shown = httpx.post(
        f"{server.api_url}/flow_runs/filter", json={"flow_runs": {"tags": {"all_": [uid]}}}
    ).json()
    assert any(each["name"].startswith("steps 0-") for each in shown), "segments are tagged"


def test_killed_in_its_stages_it_ends_with_the_same_bits(undisturbed, tmp_path, server):
    write_recipe(tmp_path)
    mortal = Mortal(tmp_path, server.api_url)
    process = mortal.start("train", "words.toml")
    wait_until(tmp_path, "sft", 8, process)
    kill_recipe(tmp_path)
    process.communicate()
    assert record_of(tmp_path).status == "interrupted"
    process = mortal.start("resume", "words")
    wait_until(tmp_path, "rm", 3, process)
    kill_stage(tmp_path, "rm")
    said, _ = process.communicate()
    assert process.returncode == 1 and "stage rm failed; grpo, gate did not begin" in said
    process = mortal.start("resume", "words")
    wait_until(tmp_path, "grpo", 1, process)
    kill_stage(tmp_path, "grpo")
    kill_recipe(tmp_path)
    process.communicate()
    said = mortal("resume", "words")
    assert "grpo       goes on: words-grpo-" in said
    assert "grpo       has begun: it was checked then" in said
    assert digests(tmp_path) == digests(undisturbed[0])
    assert left_running(server.api_url) == []


@task
def judging():
    """What a gate was at when its process was killed."""


@flow(persist_result=False)
async def comes_again(of: str) -> list[str]:
    """The flow run of a recipe, or of a gate alone; the states of that task run, before and after
    what was left is marked."""
    async with get_client() as client:
        own = FlowRunContext.get().flow_run.id
        left = await client.create_task_run(judging, own, dynamic_key="0", state=Running())
        states = [(await client.read_task_run(left.id)).state_name]
        await (mark_what_was_left([uuid4().hex]) if of == "recipe" else mark_own_task_runs())
        return [*states, (await client.read_task_run(left.id)).state_name]


@pytest.mark.parametrize("of", ["recipe", "gate"])
def test_a_flow_run_that_comes_again_leaves_no_task_run_of_its_own_running(server, of):
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        assert asyncio.run(comes_again(of)) == ["Running", "Crashed"]


def test_what_is_complete_is_not_made_again(undisturbed, server):
    folder, _ = undisturbed
    said = Mortal(folder, server.api_url)("train", "words.toml")
    assert "nothing to do: every stage was complete" in said


ALL = ["sft", "rm", "grpo", "gate"]
CHANGES = {
    "nothing": ([], []),
    "where checkpoints are kept": (["stages.grpo.checkpoints.keep_last=5"], []),
    "how it is logged": (["defaults.logging.segment_steps=3"], []),
    "a limit": (["limits.cpu_stages=2"], []),
    "workers": (["stages.grpo.rollout.num_rollout_workers=2"], []),
    "the seed of all": (["defaults.seed=3"], ALL),
    "a rate of sft": (["stages.sft.training.learning_rate=2e-2"], ALL),
    "the model": (["stages.sft.model.new.hidden_size=32"], ALL),
    "a rate of the reward model": (
        ["stages.rm.training.learning_rate=2e-2"],
        ["rm", "grpo", "gate"],
    ),
    "steps of grpo": (["stages.grpo.training.max_steps=5"], ["grpo", "gate"]),
    "the temperature": (["stages.grpo.rollout.temperature=0.9"], ["grpo", "gate"]),
    "what the gate wants": (["stages.gate.min_gain=-9.0"], ["gate"]),
    "the name in use": (["stages.gate.name=other"], ["gate"]),
    "where models are": (["stages.gate.models_dir=others"], ["gate"]),
    "where the run ends": (["stages.grpo.training.until.max_rollouts=20"], ["grpo", "gate"]),
}
"""Overrides, and the stages that they make again."""


def to_do(file, overrides=()):
    """Return the stages that would be made: those that are not complete."""
    found = Recipe(read_recipe(file, overrides)).look()
    return [name for name, each in found.items() if each.state != "complete"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_makes_what_depends_on_it(undisturbed, change, monkeypatch):
    folder, _ = undisturbed
    overrides, expected = CHANGES[change]
    monkeypatch.chdir(folder)
    assert to_do(folder / "words.toml", overrides) == expected


def test_files_count_by_what_is_in_them(undisturbed, tmp_path, monkeypatch):
    moved = tmp_path / "moved"
    shutil.copytree(undisturbed[0], moved, symlinks=True)
    monkeypatch.chdir(moved)
    file = moved / "words.toml"
    assert to_do(file) == []
    (moved / "rows.jsonl").rename(moved / "demonstrations.jsonl")
    assert to_do(file, ["stages.sft.data.source=demonstrations.jsonl"]) == []
    assert to_do(file, [f"stages.sft.data.source={moved}/demonstrations.jsonl"]) == []
    (moved / "demonstrations.jsonl").rename(moved / "rows.jsonl")
    (moved / "readme.txt").write_text("of no account")
    assert to_do(file) == []
    with (moved / "rewards.py").open("a") as rewards:
        rewards.write("\n# edited\n")
    assert to_do(file) == ["grpo", "gate"]
    shutil.copy(undisturbed[0] / "rewards.py", moved / "rewards.py")
    pairs = (moved / "pairs.jsonl").read_text().splitlines()
    (moved / "pairs.jsonl").write_text("\n".join([*pairs[1:], pairs[0]]))
    assert to_do(file) == ["rm", "grpo", "gate"]
    (moved / "pairs.jsonl").write_text("\n".join(pairs))
    assert to_do(file) == []
    run = next((moved / "runs").glob("words-rm-*"))
    final = run / "final" / "model.safetensors"
    final.chmod(0o644)
    final.write_bytes(final.read_bytes()[:-1] + b"?")
    assert to_do(file) == ["rm", "grpo", "gate"]  # as far as one knows before rm is made again


def test_a_parent_that_is_made_again_with_the_same_bits_changes_nothing(
    undisturbed, tmp_path, server
):
    copied = tmp_path / "copied"
    shutil.copytree(undisturbed[0], copied, symlinks=True)
    for run in (copied / "runs").glob("words-sft-*"):
        shutil.rmtree(run)
    said = Mortal(copied, server.api_url)("train", "words.toml")
    assert "made sft; complete before: 3" in said
    record = json.loads((copied / "runs/.recipes/words/recipe.json").read_text().splitlines()[1])
    assert record["stages"]["rm"]["began_at"] is None


def test_recipes_of_a_server_share_its_gpus(server, tmp_path):
    """With a global concurrency limit of one GPU, no two hold it at a time; without one, nothing
    is shared. What a killed recipe has held is given back when it goes on, and not before."""

    def slots(recipe: str) -> GpuSlots:
        return GpuSlots(tmp_path / recipe, patience_s=300.0)

    async def most_at_once() -> int:
        inside: list[int] = []

        async def stage(recipe: str) -> int:
            async with slots(recipe).hold(1):
                inside.append(1)
                await asyncio.sleep(0.5)
                most = len(inside)
                inside.pop()
                return most

        return max(await asyncio.gather(stage("one"), stage("two")))

    async def is_free(recipe: str) -> bool:
        try:
            async with asyncio.timeout(3), slots(recipe).hold(1):
                return True
        except TimeoutError:
            return False

    async def scenario() -> None:
        assert await most_at_once() == 2
        async with get_client() as client:
            limit = GlobalConcurrencyLimitCreate(name=GPUS, limit=1)
            await client.create_global_concurrency_limit(limit)
            try:
                assert await most_at_once() == 1
                with pytest.raises(ConfigError, match="computes on 2 GPUs, and the server lends"):
                    await slots("one").hold(2).__aenter__()
                killed = slots("one").hold(1)
                await killed.__aenter__()
                assert not await is_free("two")
                assert await is_free("one")  # as the next process of the same recipe
                assert await is_free("two")
            finally:
                await client.delete_global_concurrency_limit_by_name(GPUS)

    with temporary_settings({PREFECT_API_URL: server.api_url}), disable_run_logger():
        asyncio.run(scenario())


def test_a_person_is_asked_once_however_many_nights_go_by(undisturbed, server, monkeypatch):
    """Two nights with the same model: the first flow run is suspended, the second points to it."""
    folder, _ = undisturbed
    monkeypatch.chdir(folder)
    person = ["stages.gate.approval=person", "stages.gate.name=asked", "name=words"]
    given = {"recipe_file": "words.toml", "overrides": person}

    async def night(client) -> UUID:
        flow_id = await client.create_flow(recipe)
        deployment = await client.create_deployment(flow_id=flow_id, name="nights-of-a-test")
        return (await client.create_flow_run_from_deployment(deployment, parameters=given)).id

    async def attempt(client, flow_run_id: UUID) -> State:
        await client.set_flow_run_state(flow_run_id, Pending(), force=True)
        flow_run = await client.read_flow_run(flow_run_id)
        with contextlib.suppress(Pause):
            await run_flow_async(
                recipe,
                flow_run=flow_run,
                parameters=dict(flow_run.parameters),
                return_type="state",
            )
        return (await client.read_flow_run(flow_run_id)).state

    async def scenario() -> None:
        async with get_client() as client:
            first, second = await night(client), await night(client)
            assert (await attempt(client, first)).name == "Suspended"
            assert record_of(folder).status == "waiting"
            how = record_of(folder).stages["gate"].headline
            assert how.startswith(RESUME_AT) and how.endswith(f"/{first}")
            assert how_to_go_on(record_of(folder)) == how
            ended = await attempt(client, second)
            assert ended.type == "COMPLETED"
            assert ended.message == f"stage gate waits for a decision: {how}"
            assert record_of(folder).stages["gate"].headline == how
            await client.resume_flow_run(first, run_input={"decision": "promote", "by": "Ada"})
            ended = await attempt(client, first)
            assert ended.message == "made gate; complete before: 3"
            assert "promoted by Ada" in record_of(folder).stages["gate"].headline
            ended = await attempt(client, await night(client))
            assert ended.message == "nothing to do: every stage was complete"

    with temporary_settings({PREFECT_API_URL: server.api_url}):
        asyncio.run(scenario())
