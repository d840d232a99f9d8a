"""Changes of the partition map, disturbed at each of their phases, and of the shapes."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from configurators.engine.partition_map import PartitionMap
from configurators.store.documents import decode_plan
from configurators.store.etcd.client import StoreError
from configurators.store.keys import plan_key
from configurators.store.model import PlanPhase
from dzflow.errors import DzflowError
from dzflow.index import Shape
from tests.partition_maps import draw_map
from tests.simulation.world import SHAPES, SPACE, Process, World

_PHASES: tuple[PlanPhase, ...] = ("cutting", "settling", "settling", "moving")
_BITS = (0, 1, 2, 4)
_LOOK = 0.002  # seconds between looks at the phase
_PATIENCE = 4.0


class MapFaults:
    """Has the partition map changed, and disturbs that; `tasks` gets what the run waits for."""

    def __init__(self, world: World, random: Random, tasks: list["asyncio.Task[None]"]) -> None:
        self.world = world
        self.random = random
        self._tasks = tasks

    def change(self) -> str:
        """Begin with a plan for another map."""
        process = self._monitor()
        if process is None:
            return ""
        view = self.world.space.current
        wanted = draw_map(self.random, view.map.plan, _BITS)
        names = [each.name for each in self.world.of("configurator")]
        assignment = {
            leaf: self.random.choice(names)
            for leaf in wanted.leaves()
            if self.world.shape.mode == "sna" and self.random.random() < 0.5
        }
        work = self._change(process, wanted, assignment)
        self.world.loop.create_task(work, context=process.node.context)
        return ", ".join(wanted.leaves())

    def disturb(self) -> str:
        """Begin with a plan, and make a fault in one of its phases."""
        asked = self.change()
        if asked:
            phase = self.random.choice(_PHASES)
            how = self.random.choice(sorted(self._faults()))
            self._tasks.append(asyncio.create_task(self._disturb(phase, how)))
            return f"{asked}, when {phase}: {how}"
        return ""

    def abort(self) -> str:
        """Begin with a plan, and abort it a moment later."""
        asked, process = self.change(), self._monitor()
        if asked and process:
            work = self._abort(process)
            self.world.loop.create_task(work, context=process.node.context)
        return asked

    def late(self) -> str:
        """Begin with a plan that everybody hears late of, some later than others, and abort it."""
        for process in self.world.processes.values():
            process.node.hears_late = self.random.choice((0.0, 0.2, 0.5, 1.5, 3.0))
        return self.abort()

    def _monitor(self) -> Process | None:
        alive = [p for p in self.world.of("dispatcher") if p.alive and p.monitor]
        return self.random.choice(alive) if alive else None

    def change_shapes(self) -> str:
        """Begin to index all records again, by another dictionary."""
        alive = [p for p in self.world.of("dispatcher") if p.alive and p.main]
        if not alive or self.world.shape.plan == "lpm":
            return ""
        process = self.random.choice(alive)
        shapes = self.random.sample(SHAPES, self.random.randint(1, len(SHAPES)))
        work = self._change_shapes(process, shapes)
        self.world.loop.create_task(work, context=process.node.context)
        return f"{process.name}: {shapes}"

    def disturb_shapes(self) -> str:
        """Kill a dispatcher, and before or after that begin to index all records again."""
        process = self._any("dispatcher")
        if self.random.random() < 0.5:
            self._kill(process)
            asked = self.change_shapes()
        else:
            asked = self.change_shapes()
            self.world.after(self.random.choice((0.002, 0.02, 0.2)), partial(self._kill, process))
        return f"{asked}, with {process.name} killed" if asked else ""

    async def _change_shapes(self, process: Process, shapes: Iterable[Shape]) -> None:
        try:
            await process.main.put_shapes(SPACE, self.world.space.doc.current, shapes)
        except (DzflowError, StoreError) as error:
            self.world.note(f"the shapes are not changed: {error}")

    async def _change(
        self, process: Process, wanted: PartitionMap, assignment: dict[str, str]
    ) -> None:
        assert process.monitor
        plans, view = process.monitor.plans, self.world.space.current
        try:
            await plans.start(SPACE, view.version, view.map_number, wanted, assignment)
        except (DzflowError, StoreError) as error:
            self.world.note(f"the map is not changed: {error}")

    async def _abort(self, process: Process) -> None:
        assert process.monitor
        plans = process.monitor.plans
        await asyncio.sleep(self.random.choice((0.002, 0.02, 0.2, 2.0)))
        try:
            await plans.abort(SPACE)
        except (DzflowError, StoreError) as error:
            self.world.note(f"the plan is not aborted: {error}")

    async def _disturb(self, phase: PlanPhase, how: str) -> None:
        deadline = self.world.loop.now + _PATIENCE
        key = plan_key(self.world.space.number)
        while self.world.loop.now < deadline:
            stored = self.world.store.get(key)
            if stored and decode_plan(stored.value).phase == phase:
                await asyncio.sleep(self.random.choice((0.0, 0.002, 0.01, 0.05)))
                self.world.note(f"FAULT at a plan that is {phase}: {how}")
                self._faults()[how]()
                return
            await asyncio.sleep(_LOOK)

    def _faults(self) -> dict[str, Callable[[], None]]:
        return {
            "configurator killed": lambda: self._kill(self._any("configurator")),
            "configurators killed": lambda: self._kill(*self.world.of("configurator")),
            "dispatchers killed": lambda: self._kill(*self.world.of("dispatcher")),
            "southbound killed": lambda: self._kill(self._any("southbound")),
            "configurator paused": lambda: self._pause("configurator"),
            "southbound paused": lambda: self._pause("southbound"),
            "configurator late": lambda: self._late("configurator"),
            "southbound late": lambda: self._late("southbound"),
            "dispatcher late": lambda: self._late("dispatcher"),
            "switch hangs up": self._hang_up,
            "etcd compacted": self.world.store.compact,
        }

    def _any(self, kind: str) -> Process:
        return self.random.choice(self.world.of(kind))

    def _kill(self, *processes: Process) -> None:
        for process in processes:
            process.kill()
            self.world.after(self.random.choice((0.2, 2.0, 8.0)), process.start)

    def _pause(self, kind: str) -> None:
        self._any(kind).pause(self.random.choice((0.3, 3.0, 7.0, 13.0)))

    def _late(self, kind: str) -> None:
        self._any(kind).node.hears_late = self.random.choice((0.2, 1.5))

    def _hang_up(self) -> None:
        switch = self.world.switches[self.random.choice(sorted(self.world.switches))]
        switch.hang_up("the connection broke")
