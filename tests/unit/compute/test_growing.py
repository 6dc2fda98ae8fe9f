"""mortal_steps.compute.pool: further workers start when there is work for them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from mortal_steps.compute.pool import Pool

AFTER_S = 0.05
PATIENCE_S = 20.0


class Container:
    """Works until it is told to end."""

    def __init__(self) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.is_prepared = False
        self.may_end = asyncio.Event()

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        if method == "start":
            self.is_prepared = True
        else:
            await self.may_end.wait()
        return method

    async def close(self) -> None:
        pass


def growing(count: int) -> Pool[Container]:
    return Pool([Container() for _ in range(count)], "start", grows_after_s=AFTER_S)


def prepared(pool: Pool[Container]) -> list[bool]:
    return [container.is_prepared for container in pool.containers]


def call(pool: Pool[Container]) -> asyncio.Task[Any]:
    return asyncio.create_task(pool.call("reward", {}, "reward/0/0", None))


async def test_one_worker_is_enough_while_nobody_waits() -> None:
    pool = growing(3)
    await pool.first_ready()
    for _ in range(3):
        first = call(pool)
        pool.containers[0].may_end.set()
        await first
    await asyncio.sleep(2 * AFTER_S)
    assert prepared(pool) == [True, False, False]
    await pool.close()


async def test_a_call_that_waits_starts_another_worker_up_to_the_number_there_may_be() -> None:
    pool = growing(2)
    await pool.first_ready()
    calls = [call(pool) for _ in range(4)]
    await asyncio.sleep(5 * AFTER_S)
    assert prepared(pool) == [True, True]
    assert not any(one.done() for one in calls)
    for container in pool.containers:
        container.may_end.set()
    assert await asyncio.gather(*calls) == ["reward"] * 4
    await pool.close()


async def test_calls_that_keep_passing_by_do_not_hold_up_growth() -> None:
    """What counts is how long a call has waited, whoever came before it meanwhile."""
    pool = growing(2)
    await pool.first_ready()
    async with pool.taken():
        waiting = call(pool)
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not pool.containers[1].is_prepared:
            assert asyncio.get_running_loop().time() < deadline
            pool._changed.set()
            await asyncio.sleep(AFTER_S / 5)
        pool.containers[1].may_end.set()
        assert await waiting == "reward"
    await pool.close()
