"""mortal_tasks.gpu_slots where two of a recipe give back at once, or its folder is a copy."""

import asyncio
import shutil
from types import SimpleNamespace
from uuid import uuid4

import httpx

from mortal_steps.errors import ServerError
from mortal_tasks.gpu_slots import GpuSlots
from tests.support.refused import refused


class Server:
    """What a client of a server with a limit is asked."""

    def __init__(self, status=200):
        self.released = []
        self._status = status

    async def increment_concurrency_slots_with_lease(self, **_):
        if self._status != httpx.codes.OK:
            request = httpx.Request("POST", "http://server/api")
            answer = httpx.Response(self._status, request=request)
            raise httpx.HTTPStatusError("refused", request=request, response=answer)
        lease = str(uuid4())
        return SimpleNamespace(json=lambda: {"limits": ["gpus"], "lease_id": lease})

    async def release_concurrency_slots_with_lease(self, lease):
        await asyncio.sleep(0.01)
        self.released.append(lease)


async def test_a_slot_is_given_back_once(tmp_path):
    """The server would count it free for each time."""
    slots, server = GpuSlots(tmp_path, 60), Server()
    lease = await slots._ask(server, 1)
    await slots._give_back_unheld(server)
    assert server.released == [], "it is held"
    slots._held.discard(lease)
    await asyncio.gather(*(slots._give_back_unheld(server) for _ in range(3)))
    assert server.released == [lease]
    assert list(tmp_path.iterdir()) == []


async def test_a_copy_of_a_project_frees_no_gpu_of_its_original(tmp_path):
    server = Server()
    await GpuSlots(tmp_path / "here", 60)._ask(server, 1)
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    await GpuSlots(tmp_path / "copy", 60)._give_back_unheld(server)
    assert server.released == []
    assert list((tmp_path / "copy").iterdir()) == []
    await GpuSlots(tmp_path / "here", 60)._give_back_unheld(server)
    assert len(server.released) == 1, "as the next process of a killed one does"


async def test_a_server_that_refuses_for_good_is_not_asked_again(tmp_path):
    with refused(ServerError, "lends no GPU"):
        await asyncio.wait_for(GpuSlots(tmp_path, 60)._take(Server(status=403), 1), 5)
