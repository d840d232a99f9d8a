"""One run: a world and faults drawn from a seed, then healing, then the checker."""

import asyncio
import gc
import logging
import random as global_random
from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random

from msgspec import Struct

from configurators.engine.partials import Request as Active
from configurators.store.documents import encode
from configurators.store.etcd.client import Put, unchanged
from configurators.store.keys import owner_key, wanted_key
from configurators.store.model import Record, Wanted, WorkerKind
from configurators.streams.packing import pack_regions, unpack_regions
from sdn.tables.flows import FlowEntry
from tests.oracle import expected_entries
from tests.robustness.checker import Violation, check
from tests.robustness.record import Fault, Round, Stored
from tests.simulation.guests import Guests
from tests.simulation.lock_faults import LockFaults
from tests.simulation.loop import Stuck, VirtualLoop
from tests.simulation.map_faults import MapFaults
from tests.simulation.move_faults import MoveFaults
from tests.simulation.traffic import Traffic
from tests.simulation.world import LoggedErrors, Mode, Shape, World

_MOMENT = 1.0  # seconds for which a fault waits for its moment
_REST = 240.0  # virtual seconds after which a healed world must be at rest
SHAPES = (
    Shape(),
    Shape(ordering="fifo", at_once=1),
    Shape(plan="lpm"),
    Shape(southbound=2),
    Shape(topology="ring:3", configurators=3),
    Shape(topology="line:3", partitions=5, southbound=2, ordering="ordered"),
)
SEA_SHAPES = (
    Shape(mode="sea"),
    Shape(mode="sea", ordering="fifo", at_once=1, patience=0.01),
    Shape(mode="sea", plan="lpm", patience=0.01),
    Shape(mode="sea", southbound=2),
    Shape(mode="sea", topology="ring:3", configurators=3, at_once=1, patience=0.01),
    Shape(mode="sea", partitions=5, southbound=2, ordering="ordered", at_once=2),
)


def shape_of(seed: int, mode: Mode | None = None) -> Shape:
    """The shape of a seed's run; half of the seeds run in each mode, unless one is given."""
    number, place = divmod(seed, len(SHAPES))
    if mode is None:
        mode = "sea" if number % 2 else "sna"
    return (SEA_SHAPES if mode == "sea" else SHAPES)[place]


class Result(Struct):
    """The result of a run."""

    seed: int
    violations: list[Violation]
    faults: list[str]
    requests: int = 0
    events: int = 0
    callbacks: int = 0
    steps: list[str] | None = None


def run(
    seed: int,
    verbose: bool = False,
    only: Collection[str] = (),
    mode: Mode | None = None,
    guests: bool = False,
) -> Result:
    """Run a seed; the same seed gives the same run.

    Faults may be restricted to some kinds, and the mode may be given. With `guests`, hosts come and
    go, too.
    """
    loop = VirtualLoop(seed)
    global_random.seed(seed)
    errors = LoggedErrors()
    logger = logging.getLogger()
    logger.addHandler(errors)
    asyncio.set_event_loop(loop)
    gc.disable()
    try:
        world = World(loop, shape_of(seed, mode), errors)
        if verbose:
            world.steps = []
            world.wires.trace = world.note
            world.store.on_change = world.note_change
            logger.addHandler(notes := _Notes(world))
            logger.setLevel(logging.INFO)
        scenario = Scenario(world, Random(seed), only, guests)
        try:
            loop.run_until_complete(
                loop.create_task(scenario.run(), context=scenario.traffic.node.context)
            )
        except Stuck as stuck:
            scenario.found.append(Violation("stuck", str(stuck)))
        if verbose:
            logger.removeHandler(notes)
        found = scenario.found + [Violation("exception", text) for text in errors.found]
        traffic = scenario.traffic
        return Result(
            seed,
            found,
            [fault.kind for fault in scenario.faults],
            len(traffic.entries),
            traffic.events.sent,
            loop.steps,
            world.steps,
        )
    finally:
        logger.removeHandler(errors)
        loop.finish()
        asyncio.set_event_loop(None)


class _Notes(logging.Handler):
    """Adds the log lines of processes to the steps."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(f"  log {record.name}: {record.getMessage()}")


class Scenario:
    """The course of a run: traffic, faults, healing, checks."""

    def __init__(
        self, world: World, random: Random, only: Collection[str] = (), guests: bool = False
    ) -> None:
        self.world = world
        self.random = random
        self.loop = world.loop
        self.traffic = Traffic(world, random)
        self.guests = Guests(world, random, self.traffic) if guests else None
        self.faults: list[Fault] = []
        self.found: list[Violation] = []
        self._extra: list[asyncio.Task[None]] = []
        maps = MapFaults(world, random, self._extra)
        self._menu: list[tuple[str, int, Callable[[], str]]] = [
            ("configurator killed", 4, lambda: self._kill("configurator")),
            ("dispatcher killed", 3, lambda: self._kill("dispatcher")),
            ("southbound killed", 3, lambda: self._kill("southbound")),
            ("configurator paused", 3, lambda: self._pause("configurator")),
            ("dispatcher paused", 2, lambda: self._pause("dispatcher")),
            ("southbound paused", 2, lambda: self._pause("southbound")),
            ("stream slow", 4, self._slow_stream),
            ("watch slow", 4, self._slow_watch),
            ("stream cut", 4, self._cut_stream),
            ("unreachable", 2, self._block),
            ("switch hangs up", 4, self._hang_up),
            ("connection lost", 3, self._cut_connection),
            ("switch restarts", 3, self._restart_switch),
            ("switch refuses", 3, self._fill_switch),
            ("etcd flaky", 2, self._flaky_etcd),
            ("etcd away", 1, self._etcd_away),
            ("etcd slow", 1, self._slow_etcd),
            ("etcd compacted", 2, self._compact_etcd),
            ("map changed", 6, maps.change),
            ("map change disturbed", 12, maps.disturb),
            ("map change aborted", 3, maps.abort),
            ("map change heard late", 3, maps.late),
            ("shapes changed", 6, maps.change_shapes),
            ("shapes change disturbed", 6, maps.disturb_shapes),
        ]
        self.locks: LockFaults | None = None
        if world.shape.mode == "sea":
            self.locks = locks = LockFaults(world, random, self._end_soon)
            self._menu += [
                ("lock lost", 3, locks.lose),
                ("lock passed on", 4, locks.pass_on),
                ("lock usurped", 6, locks.usurp),
            ]
        else:
            moves = MoveFaults(world, random, self._extra, self._end_soon)
            self._menu += [
                ("owner changed", 4, self._reassign),
                ("owner usurped", 6, self._usurp),
                ("partition moved", 6, moves.ask),
                ("move disturbed", 12, moves.disturb),
                ("configurator leaves", 2, lambda: self._send_away("configurators")),
            ]
        if world.shape.southbound > 1:
            self._menu.append(("southbound leaves", 3, lambda: self._send_away("southbound")))
        if only:
            self._menu = [item for item in self._menu if item[0] in only]

    async def run(self) -> None:
        """Run from the start to the checks."""
        world, traffic = self.world, self.traffic
        world.start()
        for switch in world.switches.values():
            switch.watch = self._operated
        await self._rest("at the start")
        await traffic.settle_in()
        begin = self.loop.now
        clients = [
            asyncio.create_task(traffic.client(n, self.random.randint(2, 5), self.random))
            for n in range(3)
        ]
        if self.guests:
            self.guests.start()
        faults = asyncio.create_task(self._make_faults(self.random.randint(1, 5)))
        events = asyncio.create_task(self._publish())
        await asyncio.gather(*clients, faults)
        await asyncio.gather(*self._extra)
        self._heal()
        if self.guests:
            await self.guests.finish()
            used = [Fault("table used again", "", begin, begin)] * self.guests.reused
            self.faults += used
        events.cancel()
        healed = self.loop.now
        trouble = await self._rest("after healing")
        traffic.events.dark.clear()
        for _ in range(20):
            traffic.events.publish()
        self.found += traffic.events.violations
        entries = [*traffic.entries, *self.faults, self._round(1, begin, healed, trouble)]
        self.found += check(entries)
        if not self.found:
            begin = self.loop.now
            trouble = await self._hand_over()
            self.found += check([*entries, self._round(2, begin, begin, trouble)])

    async def _rest(self, when: str) -> str:
        """Wait until all is at rest; returns what is not, if that takes too long."""
        deadline = self.loop.now + _REST
        calm = 0
        while True:
            busy = self.world.busy()
            calm = 0 if busy else calm + 1
            if calm > 2:
                return ""
            if self.loop.now > deadline:
                self.world.note(f"not at rest {when}: {busy}")
                return f"{when}: {busy}"
            await asyncio.sleep(0.5)

    async def _hand_over(self) -> str:
        """Give partitions to others, or restart all configurators; returns what is not at rest."""
        how = self.random.choice(("stay", "pass on", "restart"))
        self.world.note(f"at the end all {how}")
        if how == "restart":
            for process in self.world.of("configurator"):
                process.kill()
                process.start()
        elif how == "pass on" and self.locks:
            self.locks.pass_all_on()
        return await self._rest(f"after all {how}")

    def _round(self, number: int, begin: float, healed: float, trouble: str) -> Round:
        world = self.world
        records = world.records()
        view = world.space.current
        doc = world.network_doc
        active = [
            Active(
                record.kind == "advertisement",
                record.id,
                record.host,
                unpack_regions(record.regions[view.version]),
            )
            for record in records
            if record.state == "active"
        ]
        scope = view.scope(doc.pipeline.prefix)
        expected = expected_entries(
            active, view.map, world.topology, self.traffic.events.trees(), doc.pipeline, scope
        )
        self._check_beliefs(expected)
        self._check_regions(records)
        has = world.network.entries(doc.pipeline)
        same = has == expected
        return Round(
            number,
            begin,
            healed,
            self.loop.now,
            tuple(
                Stored(r.id, r.kind, r.host, r.filter, r.state, r.label or "", r.open)
                for r in records
            ),
            # Record the tables only if they differ.
            {} if same else {s: tuple(map(str, entries)) for s, entries in has.items()},
            {} if same else {s: tuple(map(str, entries)) for s, entries in expected.items()},
            trouble,
        )

    def _check_beliefs(self, expected: Mapping[str, set[FlowEntry]]) -> None:
        """Check that owners know what switches should hold: they decide by that."""
        believed: dict[str, set[FlowEntry]] = {switch: set() for switch in expected}
        for worker in self.world.workers().values():
            for switch, entries in worker.engine.entries().items():
                believed[switch].update(entries)
        for switch, wanted in expected.items():
            if believed[switch] != wanted:
                missing, extra = wanted - believed[switch], believed[switch] - wanted
                text = f"{switch}: owners miss {len(missing)} entries, {len(extra)} are too many"
                self.found.append(Violation("believed", text))

    def _check_regions(self, records: Iterable[Record]) -> None:
        """Check that all records have regions by the dictionary in force, if none was refused."""
        if any(fault.kind == "switch refuses" for fault in self.faults):
            return
        space = self.world.space
        for record in records:
            wanted = {v: pack_regions(r) for v, r in space.regions(record.filter).items()}
            if record.state == "active" and record.regions != wanted:
                text = f"{record.id} has regions of another dictionary"
                self.found.append(Violation("regions", text))

    # Events

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(4.0))
            self.traffic.events.publish()

    def _operated(self) -> None:
        if self.loop.random.random() < 0.05:
            self.traffic.events.publish()

    # Faults

    async def _make_faults(self, count: int) -> None:
        kinds = self.random.choices(
            [kind for kind, _, _ in self._menu], [weight for _, weight, _ in self._menu], k=count
        )
        by_name = {kind: make for kind, _, make in self._menu}
        for kind in kinds:
            await asyncio.sleep(self.random.expovariate(1.5))
            begin = self.loop.now
            target = by_name[kind]()
            while not target and self.loop.now < begin + _MOMENT:
                await asyncio.sleep(0.003)  # the right moment has not come yet
                target = by_name[kind]()
            self.world.note(f"FAULT {kind}: {target}")
            self.faults.append(Fault(kind, target, begin, begin))

    def _kill(self, kind: str) -> str:
        process = self.random.choice(self.world.of(kind))
        process.kill()
        self.world.after(self.random.choice((0.5, 2.0, 8.0)), process.start)
        return process.name

    def _pause(self, kind: str) -> str:
        process = self.random.choice(self.world.of(kind))
        process.pause(self.random.choice((0.3, 3.0, 7.0, 13.0)))
        return process.name

    def _reassign(self) -> str:
        """Assign a partition to another owner."""
        name = self.random.choice(self.world.partitions)
        return self._assign(name, self.random.choice(self.world.of("configurator")).name)

    def _assign(self, name: str, to: str) -> str:
        key = owner_key(name)
        stored = self.world.store.get(key)
        assert stored
        put = Put(key, to.encode())
        self.world.store.transact([unchanged(key, stored.revision)], [put], [])
        return f"{name} to {to}"

    def _usurp(self) -> str:
        """Assign a busy partition to another owner; some processes hear of it late."""
        busy = [
            (process, name)
            for process in self.world.of("configurator")
            if process.alive and process.main
            for name, worker in process.main.partitions.owned.items()
            if worker.load().queued
        ]
        if not busy:
            return ""
        process, name = self.random.choice(busy)
        worker = process.main.partitions.owned[name]
        tasks = {item.task.id for item in worker.open_items()}
        # Meanwhile the new owner carries out the tasks of the old one, and clients end them.
        self._end_soon(tasks)
        late = self.random.choice(("paused", "owner late", "all late", "all late"))
        seconds = self.random.choice((1.0, 2.0, 3.0))
        if late == "paused":
            process.pause(seconds)
        else:
            process.node.hears_late = seconds
        if late == "all late":
            for each in self.world.of("dispatcher"):
                each.node.hears_late = seconds
        others = [other.name for other in self.world.of("configurator") if other is not process]
        return self._assign(name, self.random.choice(others))

    def _end_soon(self, ids: set[str]) -> None:
        self._extra.append(asyncio.create_task(self._end_records(ids)))

    async def _end_records(self, ids: set[str]) -> None:
        await asyncio.sleep(0.3)
        for known in [each for each in self.traffic.known if each.id in ids]:
            await self.traffic.end(known)

    def _slow_stream(self) -> str:
        streams = [end for s in self.world.wires.streams for end in (s, s.other) if not s.over]
        if not streams:
            return "none"
        # Mostly streams with tasks, so that tasks of another dispatcher overtake them.
        names = [process.name for process in self.world.of("dispatcher")]
        tasks = [s for s in streams if s.node.name in names and s.peer.startswith("c")]
        stream = self.random.choice(tasks if tasks and self.random.random() < 0.7 else streams)
        stream.slow = self.random.choice((0.2, 1.0, 2.0))
        return f"{stream.node.name} to {stream.peer}"

    def _slow_watch(self) -> str:
        process = self.random.choice([*self.world.processes.values()])
        process.node.hears_late = self.random.choice((0.2, 1.0, 3.0))
        return process.name

    def _cut_stream(self) -> str:
        streams = [s for s in self.world.wires.streams if not s.over]
        if not streams:
            return "none"
        stream = self.random.choice(streams)
        self.world.wires.cut(stream, "the connection broke")
        return f"{stream.node.name} to {stream.other.node.name}"

    def _block(self) -> str:
        """Two processes cannot reach each other for a while."""
        kinds = self.random.choice((("dispatcher", "configurator"), ("configurator", "southbound")))
        first, second = (self.random.choice(self.world.of(kind)) for kind in kinds)
        pair = frozenset((first.name, second.name))
        wires = self.world.wires
        wires.blocked.add(pair)
        for stream in wires.of(first.node):
            if {stream.node.name, stream.other.node.name} == pair:
                wires.cut(stream, "the connection broke")
        self.world.after(self.random.choice((1.0, 4.0, 9.0)), wires.blocked.discard, pair)
        return " and ".join(sorted(pair))

    def _switch(self) -> str:
        return self.random.choice(sorted(self.world.switches))

    def _hang_up(self) -> str:
        name = self._switch()
        self.world.switches[name].hang_up("the connection broke")
        return name

    def _cut_connection(self) -> str:
        """A switch loses its connection to one southbound process; it dials again."""
        switch = self.world.switches[self._switch()]
        connections = list(switch.connections.values())
        if not connections:
            return ""
        connection = self.random.choice(connections)
        connection.cut("the connection broke")
        return f"{switch.name} to {connection.node.name}"

    def _send_away(self, kind: WorkerKind) -> str:
        """The last worker of a kind is to leave, for a while."""
        count = self._count(kind)
        self._want(kind, count - 1)
        self.world.after(self.random.choice((1.0, 4.0, 9.0)), self._want, kind, count)
        return f"the last of {count}"

    def _count(self, kind: WorkerKind) -> int:
        shape = self.world.shape
        return shape.southbound if kind == "southbound" else shape.configurators

    def _want(self, kind: WorkerKind, count: int) -> None:
        self.world.store.transact([], [Put(wanted_key(kind), encode(Wanted(count)))], [])

    def _restart_switch(self) -> str:
        name = self._switch()
        switch = self.world.switches[name]
        how = self.random.choice(("kept", "empty", "old"))
        switch.restart(how)
        if how != "kept":
            self.traffic.events.dark.add(name)
        self.world.after(self.random.choice((0.1, 1.0, 5.0)), switch.come_back)
        return f"{name}, tables {how}"

    def _fill_switch(self) -> str:
        name = self._switch()
        switch = self.world.switches[name]
        switch.room = len(switch.tables.entries) + self.random.randint(0, 3)
        self.world.after(self.random.choice((1.0, 4.0)), self._make_room, name)
        return name

    def _make_room(self, name: str) -> None:
        self.world.switches[name].room = None

    def _flaky_etcd(self) -> str:
        self.world.store.flaky = 0.3
        self.world.after(self.random.choice((0.5, 3.0)), self._steady_etcd)
        return "etcd"

    def _etcd_away(self) -> str:
        self.world.store.down = True
        self.world.after(self.random.choice((0.5, 3.0, 12.0)), self._steady_etcd)
        return "etcd"

    def _slow_etcd(self) -> str:
        self.world.store.slow = 100.0
        self.world.after(self.random.choice((1.0, 3.0)), self._steady_etcd)
        return "etcd"

    def _compact_etcd(self) -> str:
        self.world.store.compact()
        return "etcd"

    def _steady_etcd(self) -> None:
        store = self.world.store
        store.flaky, store.down, store.slow = 0.0, False, 1.0

    def _heal(self) -> None:
        """End all faults; the processes must recover by themselves."""
        world = self.world
        world.note("all faults end")
        self._steady_etcd()
        self._want("southbound", world.shape.southbound)
        self._want("configurators", world.shape.configurators)
        world.wires.blocked.clear()
        for switch in world.switches.values():
            switch.room = None
            if not switch.up:
                switch.come_back()
        for stream in world.wires.streams:
            stream.slow = stream.other.slow = 0.0
        for process in world.processes.values():
            process.node.hears_late = 0.0
            process.wake()
            process.start()
