"""A worker has one call at a time, also when it is lost and joins again meanwhile."""

import asyncio

from mortal_steps.compute.pool import Pool


class FakeContainer:
    """Answers `work` when it is let go; the process that it stands for is never started."""

    def __init__(self):
        self.on_lost = None
        self.busy = 0
        self.most = 0
        self.let_go = asyncio.Event()

    async def call(self, method, payload, label):
        if method == "start":
            return
        if label == "late":  # of the process that was lost
            await self.let_go.wait()
            return
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0.02)
        self.busy -= 1

    async def close(self):
        pass


async def test_a_call_that_ends_late_frees_nobody_who_joined_again():
    container = FakeContainer()
    pool = Pool([container], "start")
    late = asyncio.create_task(pool.call("work", {}, "late", None))
    await asyncio.sleep(0.01)
    container.on_lost()  # it joins again at once
    await asyncio.sleep(0.01)
    others = [asyncio.create_task(pool.call("work", {}, "other", None)) for _ in range(2)]
    await asyncio.sleep(0.005)
    container.let_go.set()
    await asyncio.gather(late, *others)
    assert container.most == 1
    await pool.close()
