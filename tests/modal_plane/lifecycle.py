"""What happens to containers and apps by and by: idle, redeployed, stopped, abandoned."""

from __future__ import annotations

import asyncio
import time

from modal_proto import api_pb2 as pb

from .pools import Pools, live_containers
from .types import App, Function, Result, World

TICK_S = 0.1
"""Between two looks."""
APP_STOPPED = Result(status=Result.GENERIC_STATUS_TERMINATED, exception="App stopped")


class Lifecycle:
    """Ends what has no reason to be there any more."""

    def __init__(self, world: World, pools: Pools) -> None:
        self.world = world
        self.pools = pools

    def roll_over(self, app: App) -> None:
        """After a deployment: containers of the one before finish their inputs and go."""
        for function in self.world.functions_of(app.id):
            if not function.pinned_version:
                for container in live_containers(function):
                    container.drain("redeployed")
                self.pools.scale(function)

    def client_left(self, app: App) -> None:
        """The client of `modal run` is gone: the app goes too, unless it is detached."""
        if app.state == pb.APP_STATE_EPHEMERAL:
            self.stop_app(app)
        elif app.state == pb.APP_STATE_DETACHED:
            app.state = pb.APP_STATE_DETACHED_DISCONNECTED

    def stop_app(self, app: App) -> None:
        """End all containers and inputs of the app."""
        app.state, app.stopped_at = pb.APP_STATE_STOPPED, time.time()
        self.world.events.add("app_stopped", app=app.id, name=app.name)
        self.world.deployed = {k: v for k, v in self.world.deployed.items() if v != app.id}
        for function in self.world.functions_of(app.id):
            self.pools.fail_queue(function, APP_STOPPED)
            for container in list(function.containers.values()):
                for one in list(container.inputs.values()):
                    self.pools.finish(one, APP_STOPPED)
                self.world.start(self.pools.preempt(container, "app stopped"))
        app.log_signal.notify()

    async def run(self) -> None:
        """End idle containers and abandoned apps, for as long as the plane is there."""
        while True:
            await asyncio.sleep(TICK_S)
            for function in list(self.world.functions.values()):
                self._end_idle(function)
            for app in list(self.world.apps.values()):
                self._end_abandoned(app)

    def _end_idle(self, function: Function) -> None:
        settings = function.definition.autoscaler_settings
        window = settings.scaledown_window or function.definition.task_idle_timeout_secs
        window_s = window or self.world.options.scaledown_s
        live = live_containers(function)
        idle = [
            one
            for one in live
            if one.is_ready
            and not one.inputs
            and not one.rank
            and time.time() - one.idle_since > window_s
        ]
        if not function.queue:
            for container in idle[: max(0, len(live) - settings.min_containers)]:
                container.drain("idle")

    def _end_abandoned(self, app: App) -> None:
        silent_s = time.time() - app.last_heartbeat
        if silent_s > self.world.options.heartbeat_timeout_s and app.state in (
            pb.APP_STATE_EPHEMERAL,
            pb.APP_STATE_DETACHED,
        ):
            self.client_left(app)
        if app.state == pb.APP_STATE_DETACHED_DISCONNECTED and not any(
            call.num_unfinished
            for call in self.world.calls.values()
            if call.function.app_id == app.id
        ):
            self.stop_app(app)
