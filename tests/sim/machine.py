"""What the state machines of the cache share: its loop, what was started there, and how all of it ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvspill.world import VirtualLoop, World
from sim.harness import check_ledgers

SETTINGS = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class Machine(RuleBasedStateMachine):
    """Anything is started at any time and left to run for any time. `cache` is made by the machine itself."""

    cache: Any

    def open_loop(self, seed: int) -> None:
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.world = World(seed, self.loop.now_ns, virtual=True)
        self.tasks: list[asyncio.Task[Any]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str | None = None) -> None:
        self.tasks.append(self.loop.create_task(coroutine, name=name))

    @rule(microseconds=st.integers(0, 400))
    def wait(self, microseconds: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(microseconds / 1e6))

    @invariant()
    def ledgers_hold(self) -> None:
        if hasattr(self, "cache"):
            check_ledgers(self.cache)

    def give_up(self) -> None:
        """Give up what keeps others from ending."""

    def check_end(self) -> None:
        """Once all has ended by itself, every byte is accounted for."""

    def teardown(self) -> None:
        """C4: once nothing is held, everything ends by itself."""
        if not hasattr(self, "cache"):
            return

        async def finish() -> None:
            self.give_up()
            while self.tasks:
                done, pending = await asyncio.wait(self.tasks, timeout=1)
                for task in done:
                    task.result()
                assert done or not pending, "no progress for a second of virtual time"
                self.tasks = list(pending)
                self.give_up()
            await self.cache.drain()

        self.loop.run_until_complete(finish())
        self.check_end()
        self.loop.close()
        asyncio.set_event_loop(None)
