"""What the Prefect server's database is not known to have yet."""

import asyncio
import uuid
from types import SimpleNamespace

from mortal_tasks.history import History


class Database:
    """Answers that it has everything that it is asked for, after a while."""

    async def request(self, method, path, json):
        await asyncio.sleep(0)
        wanted = json["task_runs"]["id"]["any_"]
        return SimpleNamespace(json=lambda: len(wanted))


async def test_two_may_ask_at_a_time():
    kept = History()
    for _ in range(300):
        kept.keep(SimpleNamespace(id=uuid.uuid4()), None)
    await asyncio.gather(kept.forget_recorded(Database()), kept.forget_recorded(Database()))
    assert len(kept) == 0
