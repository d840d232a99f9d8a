"""The worker of a partition: what it pushes, undoes, waits for and answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from configurators.engine.engine import Engine, Ordering
from configurators.partition.options import PartitionOptions
from configurators.partition.slices.replies import TaskSource
from configurators.partition.worker import PartitionWorker
from configurators.state.network import Network, first_network, with_host
from configurators.streams.messages import Done, Task, Waiting
from configurators.streams.packing import pack_regions
from dzflow.address import Scope
from dzflow.region import Region
from sdn.fence import StaleEpoch
from sdn.network.topologies import topology
from sdn.network.topology import Host
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.tables.flows import Batch, Change, FlowEntry, FlowKey
from sdn.tables.pipeline import PlanName
from tests.configurators.partition.source import Source
from tests.support import WAIT, until

SCOPE = Scope(1)
TOPOLOGY = topology("line:3")  # h1 - s1 - s2 - s3 - h3


class Tables:
    """Switches with room for so many entries each; those that are down answer nothing."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.tables: dict[str, dict[FlowKey, FlowEntry]] = {s.id: {} for s in TOPOLOGY.switches}
        self.room = dict.fromkeys(self.tables, room)
        self.down: set[str] = set()
        self.changed = asyncio.Event()
        self.batches: list[Batch] = []
        self.traces: list[bytes] = []
        self.stale = False
        self.gate: asyncio.Event | None = None  # batches wait for it
        self.asked = asyncio.Event()
        self.after: Callable[[], None] | None = None  # called after each batch

    async def apply(
        self, partition: str, epoch: int, batch: Batch, trace: bytes = b""
    ) -> dict[str, Outcome]:
        self.traces.append(trace)
        batch = dict(batch)
        self.asked.set()
        if self.gate:
            await self.gate.wait()
        if self.stale:
            raise StaleEpoch(f"{partition}: {epoch} is over")
        self.batches.append(batch)
        outcomes = {switch: self._apply(switch, ops) for switch, ops in batch.items()}
        if self.after:
            self.after()
        return outcomes

    def _apply(self, switch: str, ops: Iterable[Any]) -> Outcome:
        if switch in self.down:
            return Undefined(f"switch {switch}: not connected")
        table, refused = self.tables[switch], {}
        for place, op in enumerate(ops):
            key = op.entry.key
            if op.change is Change.DELETE:
                assert table.pop(key, None), "what is deleted must have been there"
            elif op.change is Change.ADD and key not in table and len(table) >= self.room[switch]:
                refused[place] = "table full"
            elif op.change is Change.ADD or key in table:
                table[key] = op.entry
        return Failed(refused, table_full=True) if refused else Acknowledged()

    async def usable(self, switches: Collection[str], patience: float) -> None:
        while self.down.issuperset(switches):
            try:
                async with asyncio.timeout(patience):
                    await self.changed.wait()
            except TimeoutError:
                return

    def up(self) -> None:
        self.down.clear()
        self.changed.set()

    def entries(self) -> dict[str, set[FlowEntry]]:
        return {s: set(table.values()) for s, table in self.tables.items() if table}


class Bench:
    """A worker at work on these tables."""

    def __init__(self, plan: PlanName, ordering: Ordering, room: int, gather: float) -> None:
        self.network = Network.of(first_network(TOPOLOGY, plan, 1))
        self.tables = Tables(room)
        self.answers: asyncio.Queue[Done | Waiting] = asyncio.Queue()
        self.replied: list[tuple[TaskSource | None, Done | Waiting]] = []
        self.source = Source()
        self.changes = 0
        options = PartitionOptions(ordering, gather=gather, tell_after=0.05, longest_pause=0.1)
        self.worker = PartitionWorker(
            "1.0/all",
            7,
            Engine(self.network.plan(SCOPE)),
            SCOPE,
            self.tables,
            self._reply,
            self._changed,
            count(1),
            options,
        )

    def _reply(self, to: TaskSource | None, reply: Done | Waiting) -> None:
        self.replied.append((to, reply))
        self.answers.put_nowait(reply)

    def _changed(self) -> None:
        self.changes += 1

    def put(self, *tasks: Task) -> None:
        self.worker.put(tasks, self.source)

    async def dones(self, number: int) -> dict[str, Done]:
        """The next so many answers, by id."""
        found: dict[str, Done] = {}
        async with asyncio.timeout(WAIT):
            while len(found) < number:
                answer = await self.answers.get()
                if isinstance(answer, Done):
                    found[answer.id] = answer
        return found

    async def do(self, *tasks: Task) -> dict[str, Done]:
        self.put(*tasks)
        return await self.dones(len(tasks))

    def check(self) -> None:
        """The switches hold what a rebuild from the active requests gives."""
        again = Engine(self.worker.engine.plan)
        again.load(self.worker.engine.active())
        expected = {switch: set(entries) for switch, entries in again.entries().items()}
        assert self.tables.entries() == expected
        assert self.worker.entries == again.count()
        assert not self.worker.engine.pending
        counters = self.worker.counters
        assert counters.arrived == counters.ended + self.worker.unfinished


@asynccontextmanager
async def working(
    plan: PlanName = "legs", ordering: Ordering = "net", room: int = 1_000_000, gather: float = 0.0
) -> AsyncIterator[Bench]:
    bench = Bench(plan, ordering, room, gather)
    running = asyncio.create_task(bench.worker.run())
    try:
        yield bench
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def regions(*texts: str) -> bytes:
    return pack_regions(map(Region.parse, texts))


def subscribe(name: str, *texts: str, host: str = "h3", seq: int = 4) -> Task:
    return Task(name, seq, host, False, regions(*texts))


def advertise(name: str, *texts: str, host: str = "h1", seq: int = 4) -> Task:
    return Task(name, seq, host, True, regions(*texts), regions(*texts))


def eights() -> list[str]:
    return [f"{number:08b}" for number in range(256)]


@pytest.mark.parametrize("ordering", ["fifo", "ordered", "net"])
@pytest.mark.parametrize("plan", ["legs", "lpm"])
async def test_tasks_become_entries_whatever_the_plan_and_the_order(
    plan: PlanName, ordering: Ordering
) -> None:
    async with working(plan, ordering) as bench:
        dones = await bench.do(
            advertise("a", "0"), *(subscribe(f"s{n}", f"0{n:02b}") for n in range(4))
        )
        assert {done.outcome for done in dones.values()} == {"done"}
        assert len(bench.worker.engine) == 5
        bench.check()
        dones = await bench.do(
            advertise("a", "00", "1", seq=8),
            subscribe("s0", seq=8),
            subscribe("s1", "1", seq=8),
            subscribe("s5", "111"),
        )
        assert {done.outcome for done in dones.values()} == {"done"}
        assert len(bench.worker.engine) == 5
        bench.check()


async def test_what_is_withdrawn_is_gone_and_only_waiting_tasks_get_a_reply() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "0"), subscribe("s1", "00"), subscribe("s2", "01"))
        bench.replied.clear()
        bench.put(subscribe("s1", seq=4))
        bench.worker.withdraw(["s1", "s2"])
        await bench.dones(2)
        replied = {(to, reply.id) for to, reply in bench.replied if isinstance(reply, Done)}
        assert replied == {(bench.source, "s1"), (None, "s2")}
        assert set(bench.worker.engine.ids()) == {"a"}
        bench.check()


async def test_replies_say_what_the_slice_took() -> None:
    async with working(gather=0.01) as bench:
        await bench.do(advertise("a", "0"))
        dones = await bench.do(subscribe("s1", "00"), subscribe("s2", "01"))
        assert {(d.slice, d.size, d.epoch, d.partition) for d in dones.values()} == {
            (2, 2, 7, "1.0/all")
        }
        # A leg on each of three switches, for each of two regions.
        assert [d.adds for d in dones.values()] == [3, 3]
        assert {d.switches for d in dones.values()} == {3}
        dones = await bench.do(subscribe("s1", seq=8), subscribe("s2", "01", "0011", seq=8))
        assert [(d.adds, d.deletes) for d in dones.values()] == [(2, 2), (1, 1)]
        assert all(d.decided_us and d.pushed_us for d in dones.values())


async def test_tasks_that_ask_for_the_current_state_are_done_without_a_push() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "0"), subscribe("s", "0"))
        pushed = len(bench.tables.batches)
        dones = await bench.do(subscribe("s", "0", seq=5), subscribe("never", seq=8))
        assert {done.outcome for done in dones.values()} == {"done"}
        assert len(bench.tables.batches) == pushed


async def test_old_tasks_are_superseded() -> None:
    async with working() as bench:
        await bench.do(subscribe("s", "0", seq=8))
        assert (await bench.do(subscribe("s", "1", seq=4)))["s"].outcome == "superseded"
        await bench.do(subscribe("s", seq=12))
        assert (await bench.do(subscribe("s", "1", seq=8)))["s"].outcome == "superseded"


async def test_a_task_of_an_unknown_host_fails_with_that_reason() -> None:
    async with working() as bench:
        dones = await bench.do(subscribe("s", "0", host="nobody"), subscribe("t", "0"))
        assert (dones["s"].outcome, dones["t"].outcome) == ("failed", "done")
        assert "nobody" in (dones["s"].reason or "")


@pytest.mark.parametrize("ordering", ["fifo", "ordered", "net"])
async def test_only_tasks_that_do_not_fit_fail_and_they_leave_no_entry(ordering: Ordering) -> None:
    async with working(ordering=ordering, gather=0.01) as bench:
        await bench.do(advertise("a", "*"))
        bench.tables.room["s2"] = 40  # 61 others fit elsewhere, but not here
        names = {f"s{n}": text for n, text in enumerate(eights()[:100])}
        dones = await bench.do(*(subscribe(name, text) for name, text in names.items()))
        outcomes = [done.outcome for done in dones.values()]
        assert (outcomes.count("done"), outcomes.count("failed")) == (40, 60)
        assert all("table full" in (d.reason or "") for d in dones.values() if d.reason)
        active = {name for name in names if name in bench.worker.engine}
        assert active == {n for n, done in dones.items() if done.outcome == "done"}
        bench.check()
        # A task that failed may come again, and fits when there is room.
        bench.tables.room["s2"] = 1_000
        failed = next(name for name, done in dones.items() if done.outcome == "failed")
        again = await bench.do(subscribe(failed, names[failed]))
        assert again[failed].outcome == "done"
        bench.check()


@pytest.mark.parametrize("plan", ["legs", "lpm"])
async def test_a_slice_with_removals_and_additions_fits_if_its_result_fits(plan: PlanName) -> None:
    async with working(plan, gather=0.01) as bench:
        await bench.do(advertise("a", "*"), *(subscribe(f"s{n}", f"0{n:03b}") for n in range(8)))
        bench.tables.room["s2"] = 8
        dones = await bench.do(
            *(subscribe(f"t{n}", f"1{n:03b}") for n in range(8)),
            *(subscribe(f"s{n}", seq=8) for n in range(5)),
        )
        assert [n for n, done in dones.items() if done.outcome == "failed"] == [
            "t5",
            "t6",
            "t7",
        ]
        bench.check()


async def test_a_failed_update_leaves_the_old_regions() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "*"), subscribe("s", "0"))
        bench.tables.room["s2"] = 1
        done = (await bench.do(subscribe("s", "10", "110", seq=8)))["s"]
        assert done.outcome == "failed"
        known = bench.worker.engine.get("s")
        assert known
        assert known.regions == (Region.parse("0"),)
        bench.check()


async def test_the_worker_waits_for_a_disconnected_switch_and_reports_that_once() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "*"))
        bench.tables.down.add("s2")
        bench.put(subscribe("s", "0"))
        async with asyncio.timeout(WAIT):
            waiting = await bench.answers.get()
        assert isinstance(waiting, Waiting)
        assert waiting.tasks == [("s", 4)]
        assert "s2" in waiting.reason
        load = bench.worker.load()
        assert (load.reason, load.queued) == (waiting.reason, 1)
        bench.tables.up()
        assert (await bench.dones(1))["s"].outcome == "done"
        assert bench.answers.empty()
        assert bench.worker.load().reason is None
        # Only what was missing was sent again.
        assert bench.tables.batches[-1].keys() == {"s2"}
        bench.check()


async def test_a_refusal_while_another_switch_is_disconnected_is_undone_everywhere() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "*"))
        bench.tables.room["s1"] = 1  # where h1 is let in, and nothing else
        bench.tables.down.add("s2")
        dones = await bench.do(subscribe("s", "0"))
        assert dones["s"].outcome == "failed"
        bench.tables.up()
        bench.check()


async def test_undoing_waits_for_a_switch_that_disconnects() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "*"))
        bench.tables.room["s1"] = 1  # where h1 is let in, and nothing else
        bench.tables.after = lambda: bench.tables.down.update({"s2", "s3"})
        bench.put(subscribe("s", "0"))
        async with asyncio.timeout(WAIT):
            waiting = await bench.answers.get()
        assert isinstance(waiting, Waiting)
        assert "s2" in waiting.reason or "s3" in waiting.reason
        assert "s" not in bench.worker.engine
        bench.tables.after = None
        bench.tables.up()
        assert (await bench.dones(1))["s"].outcome == "failed"
        bench.check()


async def test_a_newer_task_supersedes_one_that_is_being_tried_again() -> None:
    async with working(gather=0.01) as bench:
        await bench.do(advertise("a", "*"))
        bench.tables.room["s2"] = 0
        bench.tables.gate = asyncio.Event()
        bench.tables.asked.clear()
        bench.put(subscribe("s", "0"), subscribe("t", "1"))
        async with asyncio.timeout(WAIT):
            await bench.tables.asked.wait()
        bench.put(subscribe("s", seq=8))
        bench.tables.gate.set()
        found: list[tuple[str, int, str]] = []
        async with asyncio.timeout(WAIT):
            while len(found) < 3:
                answer = await bench.answers.get()
                assert isinstance(answer, Done)
                found.append((answer.id, answer.seq, answer.outcome))
        assert set(found) == {("s", 4, "superseded"), ("t", 4, "failed"), ("s", 8, "done")}
        bench.check()


async def test_a_worker_whose_epoch_is_stale_stops_and_sends_its_tasks_back() -> None:
    bench = Bench("legs", "net", 1_000, 0)
    bench.tables.stale = True
    bench.put(advertise("a", "0"))
    async with asyncio.timeout(WAIT):
        assert "is over" in await bench.worker.run()
    bench.put(subscribe("s", "0"))
    bench.worker.leave()
    dones = await bench.dones(2)
    assert {done.outcome for done in dones.values()} == {"moved"}


async def test_a_moved_host_rewires_and_one_that_does_not_fit_is_tried_again() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "*"), subscribe("s", "0", host="h2"))
        doc = first_network(TOPOLOGY, "legs", 1)
        bench.tables.room["s3"] = 0
        doc = with_host(doc, Host("h2", "s3", 9))
        moved = Network.of(doc, bench.network)
        bench.worker.take_up(20, moved)
        again = Network.of(with_host(doc, Host("new", "s1", 9)), moved)
        bench.worker.take_up(21, again)
        await until(lambda: bench.worker.reason)
        assert "network" in (bench.worker.reason or "")
        # Work goes on meanwhile.
        assert (await bench.do(subscribe("t", "0", host="h2")))["t"].outcome == "done"
        bench.tables.room["s3"] = 10
        await until(lambda: bench.worker.network == 21)
        dones = await bench.do(subscribe("u", "0", host="new"))
        assert dones["u"].outcome == "done"
        assert "s3" in bench.tables.entries()
        bench.check()


async def test_a_declaration_during_a_push_is_the_state_before_and_the_push_starts_over() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "*"), subscribe("s", "0"))
        before = bench.tables.entries()
        bench.tables.down.add("s2")
        bench.put(subscribe("t", "1"), subscribe("s", seq=8))
        async with asyncio.timeout(WAIT):
            assert isinstance(await bench.answers.get(), Waiting)
        # Another southbound process begins: its switches are brought to what is declared.
        for switch, entries in bench.worker.declaration(bench.tables.tables).items():
            assert set(entries) == before[switch]
            bench.tables.tables[switch] = {entry.key: entry for entry in entries}
        bench.tables.up()
        dones = await bench.dones(2)
        assert {done.outcome for done in dones.values()} == {"done"}
        bench.check()


async def test_clearing_deletes_all_entries_of_a_partition() -> None:
    bench = Bench("legs", "net", 1_000, 0)
    running = asyncio.create_task(bench.worker.run())
    await bench.do(advertise("a", "*"), subscribe("s", "0"))
    bench.tables.gate = asyncio.Event()
    bench.tables.asked.clear()
    bench.put(subscribe("t", "1"), subscribe("s", seq=8))
    async with asyncio.timeout(WAIT):
        await bench.tables.asked.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bench.worker.leave()
    bench.tables.gate.set()
    for table in bench.tables.tables.values():  # as if half of it had been carried out
        for entries in bench.worker.engine.entries().values():
            table.update((entry.key, entry) for entry in entries)
    bench.tables.gate = asyncio.Event()
    bench.tables.asked.clear()
    clearing = asyncio.create_task(bench.worker.clear())
    async with asyncio.timeout(WAIT):
        await bench.tables.asked.wait()
        assert bench.worker.declaration(["s1", "s2", "s3"]) == {}
        bench.tables.gate.set()
        await clearing


async def test_counters_say_what_was_done() -> None:
    async with working(gather=0.01) as bench:
        await bench.do(advertise("a", "0"))
        await bench.do(subscribe("s1", "00"), subscribe("s2", "01"))
        load = bench.worker.load()
        counters = load.counters
        assert (counters.since, counters.arrived, counters.ended, counters.slices) == (7, 3, 3, 2)
        assert counters.flow_ops == sum(map(len, bench.tables.tables.values()))
        assert counters.waited_s > 0
        assert counters.decided_s > 0
        assert counters.pushed_s > 0
        assert (load.undefined, load.oldest_s, load.queued) == (0, 0.0, 0)
        # A report stays what it was.
        await bench.do(subscribe("s3", "01"))
        assert counters.ended == 3


async def test_a_task_counts_once_however_often_it_comes_and_whatever_becomes_of_it() -> None:
    bench = Bench("legs", "net", 1_000, 0)
    counters = bench.worker.counters
    bench.put(advertise("a", "0"), subscribe("s", "0"))
    bench.put(subscribe("s", "0"))  # the same
    assert (counters.arrived, counters.ended) == (2, 0)
    bench.put(subscribe("s", "00", seq=8))  # replaces it
    bench.put(subscribe("s", "1"))  # is too old
    bench.put(subscribe("t", "0", host="nobody"))  # fails
    assert (counters.arrived, counters.ended, bench.worker.unfinished) == (5, 2, 3)
    running = asyncio.create_task(bench.worker.run())
    await bench.dones(3)
    bench.check()
    assert (counters.arrived, counters.ended) == (5, 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bench.put(subscribe("u", "0"))
    bench.worker.leave()
    assert (counters.arrived, counters.ended) == (6, 5)  # another owner does it


async def test_the_load_shows_what_waits_for_a_switch_and_for_how_long() -> None:
    async with working() as bench:
        await bench.do(advertise("a", "*"))
        bench.tables.down.add("s2")
        bench.put(subscribe("s", "0"), subscribe("t", "1"))
        async with asyncio.timeout(WAIT):
            assert isinstance(await bench.answers.get(), Waiting)
        bench.put(subscribe("u", "11"))
        load = bench.worker.load()
        assert (load.undefined, load.queued) == (2, 3)
        assert load.oldest_s > 0
        bench.tables.up()
        await bench.dones(3)
        load = bench.worker.load()
        assert (load.undefined, load.oldest_s) == (0, 0.0)
        bench.check()


async def test_a_refused_slice_counts_with_all_its_parts() -> None:
    async with working(gather=0.01) as bench:
        await bench.do(advertise("a", "*"))
        before = bench.worker.load().counters
        bench.tables.room["s2"] = 1
        await bench.do(*(subscribe(f"s{n}", f"{n:02b}") for n in range(4)))
        counters = bench.worker.load().counters
        assert counters.ended - before.ended == 4
        assert counters.slices - before.slices > 4
        assert counters.flow_ops - before.flow_ops == 3  # of the one that fits
