"""Moves of partitions between live owners in mode `sna`, disturbed at each of their phases."""

import asyncio
from collections.abc import Callable
from random import Random

from configurators.store.documents import decode_move
from configurators.store.etcd.client import Put, StoreError, unchanged
from configurators.store.keys import move_key, owner_key
from configurators.store.model import Move, MovePhase
from dispatcher.errors import DispatcherError
from tests.simulation.world import Process, World

_PHASES: tuple[MovePhase, ...] = ("asked", "copying", "handing over", "moved", "failed")
_LOOK = 0.002  # seconds between looks at the phase
_PATIENCE = 3.0


class MoveFaults:
    """Asks for moves, and disturbs them. `concern` is called with the ids of tasks in progress."""

    def __init__(
        self,
        world: World,
        random: Random,
        tasks: list["asyncio.Task[None]"],
        concern: Callable[[set[str]], None],
    ) -> None:
        """`tasks` gets what the run waits for."""
        self.world = world
        self.random = random
        self._tasks = tasks
        self._concern = concern

    def ask(self) -> str:
        """Ask for a move by any monitor."""
        dispatchers = [p for p in self.world.of("dispatcher") if p.alive and p.monitor]
        if not dispatchers:
            return ""
        process = self.random.choice(dispatchers)
        name = self.random.choice(self.world.partitions)
        owner = self.world.owners()[name][0]
        others = [p.name for p in self.world.of("configurator") if p.name != owner]
        target = self.random.choice(others)
        work = self._ask(process, name, target)
        self.world.loop.create_task(work, context=process.node.context)
        return f"{name} to {target}"

    def disturb(self) -> str:
        """Ask for a move, and make a fault in one of its phases."""
        asked = self.ask()
        if asked:
            partition = asked.partition(" ")[0]
            phase = self.random.choice(_PHASES)
            how = self.random.choice(sorted(self._faults()))
            self._tasks.append(asyncio.create_task(self._disturb(partition, phase, how)))
            return f"{asked}, when {phase}: {how}"
        return ""

    async def _ask(self, process: Process, partition: str, target: str) -> None:
        assert process.monitor
        moves = process.monitor.moves
        try:
            move = await moves.ask(partition, target, "the simulation asks for it")
            await moves.wait(partition, move, 20.0)
        except (DispatcherError, StoreError) as error:
            self.world.note(f"{partition} does not move to {target}: {error}")

    async def _disturb(self, partition: str, phase: MovePhase, how: str) -> None:
        deadline = self.world.loop.now + _PATIENCE
        while self.world.loop.now < deadline:
            stored = self.world.store.get(move_key(partition))
            move = decode_move(stored.value) if stored else None
            if move and move.phase == phase:
                self.world.note(f"FAULT at a move that is {phase}: {how}")
                self._faults()[how](partition, move)
                return
            await asyncio.sleep(_LOOK)

    def _faults(self) -> dict[str, Callable[[str, Move], None]]:
        return {
            "source killed": lambda _, move: self._kill(move.source),
            "target killed": lambda _, move: self._kill(move.target),
            "dispatchers killed": lambda *_: self._kill(*self._names("dispatcher")),
            "southbound killed": lambda *_: self._kill(self._names("southbound")[0]),
            "source paused": lambda _, move: self._pause(move.source),
            "target paused": lambda _, move: self._pause(move.target),
            "source late": lambda _, move: self._late(move.source),
            "target late": lambda _, move: self._late(move.target),
            "dispatchers late": lambda *_: self._late(*self._names("dispatcher")),
            "stream cut": self._cut,
            "owner changed": self._reassign,
            "tasks ended": self._end_tasks,
        }

    def _names(self, kind: str) -> list[str]:
        return [process.name for process in self.world.of(kind)]

    def _kill(self, *names: str) -> None:
        for name in names:
            process = self.world.processes[name]
            process.kill()
            self.world.after(self.random.choice((0.2, 2.0, 8.0)), process.start)

    def _pause(self, name: str) -> None:
        self.world.processes[name].pause(self.random.choice((0.3, 3.0, 7.0)))

    def _late(self, *names: str) -> None:
        for name in names:
            self.world.processes[name].node.hears_late = self.random.choice((0.2, 1.5))

    def _cut(self, _: str, move: Move) -> None:
        wires = self.world.wires
        for stream in wires.streams:
            if {stream.node.name, stream.other.node.name} == {move.source, move.target}:
                wires.cut(stream, "the connection broke")

    def _reassign(self, partition: str, _: Move) -> None:
        key = owner_key(partition)
        stored = self.world.store.get(key)
        assert stored
        to = self.random.choice(self._names("configurator"))
        self.world.store.transact([unchanged(key, stored.revision)], [Put(key, to.encode())], [])

    def _end_tasks(self, partition: str, move: Move) -> None:
        source = self.world.processes[move.source]
        worker = source.main.partitions.owned.get(partition) if source.main else None
        if worker:
            self._concern({item.task.id for item in worker.open_items()})
