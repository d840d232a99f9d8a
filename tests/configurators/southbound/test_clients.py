"""The way to the switches: whom a configurator declares what, and whom it uses."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from configurators.partition.long_wait import report_long_wait
from configurators.southbound.clients import SouthboundClients
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import SOUTHBOUND
from configurators.store.model import Process
from configurators.streams.listener import Listener
from configurators.streams.messages import (
    Applied,
    Apply,
    Declare,
    Raised,
    RaiseEpochs,
    SwitchReport,
    ToSouthbound,
)
from configurators.streams.stream import Stream
from dzflow.errors import DzflowError
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.tables.flows import Change, FlowEntry, FlowOp
from tests.etcd import TestEtcd
from tests.support import WAIT, until

TOKEN = b"token"


class Partition:
    """A partition of ours, with an entry on s1."""

    name = "1.0/all"
    epoch = 7
    reason: str | None = None

    def __init__(self) -> None:
        self.refusals: dict[str, str] = {}

    def say_why(self, reason: str | None) -> None:
        self.reason = reason

    def note_refusal(self, switch: str, reason: str) -> None:
        self.refusals[switch] = reason

    def keep_refusals(self, switches: Collection[str]) -> None:
        self.refusals = {s: why for s, why in self.refusals.items() if s in switches}

    def declaration(self, switches: Collection[str]) -> dict[str, list[FlowEntry]]:
        return {"s1": [FlowEntry(1, 100, None)]} if "s1" in switches else {}


class Southbound:
    """A southbound process that does as it is told, and says what it holds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[Any] = []
        self.outcome: Outcome = Acknowledged()  # of operations
        self.compared: Outcome = Acknowledged()
        self._came = asyncio.Event()
        self._report = SwitchReport(name, [], {}, 1, [])
        self._listener = Listener(
            "127.0.0.1:0", TOKEN, self.hear, ToSouthbound, name=name, on_open=self.opened
        )

    def opened(self, stream: Stream) -> None:
        stream.tell(self._report)

    def hear(self, _: Stream, message: Any) -> Any:
        self.heard.append(message)
        self._came.set()
        match message:
            case RaiseEpochs():
                return Raised()
            case Declare(switches=list(switches)):
                return Applied(dict.fromkeys(switches, self.compared))
            case Apply():
                return Applied(dict.fromkeys(message.batch, self.outcome))

    def hold(
        self, *switches: str, down: Collection[str] = (), refusing: Collection[str] = ()
    ) -> None:
        """Say that it holds these switches, and would hold others; some refuse entries."""
        self._report = SwitchReport(
            self.name,
            list(switches),
            dict.fromkeys(down, "it is away"),
            1,
            [],
            refusing=dict.fromkeys(refusing, "it is full"),
        )
        for stream in self._listener.streams:
            stream.tell(self._report)

    def declared(self) -> list[set[str]]:
        """The switches of all declarations so far."""
        return [set(m.switches or ()) for m in self.heard if isinstance(m, Declare)]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not condition():
                self._came.clear()
                await self._came.wait()

    @contextlib.asynccontextmanager
    async def serving(self, etcd: Etcd) -> AsyncIterator[None]:
        async with self._listener:
            address = self._listener.address
            await etcd.put(SOUTHBOUND + self.name, encode(Process(self.name, address, 1, "node")))
            yield
            await etcd.delete(SOUTHBOUND + self.name)


def clients(etcd: Etcd, partition: Partition | None = None) -> SouthboundClients:
    ours = partition or Partition()
    return SouthboundClients(
        etcd, TOKEN, "c1", lambda: [ours], lambda: {ours.name: ours.epoch}, print, lambda: 0
    )


async def usable(made: SouthboundClients, switch: str) -> None:
    async with asyncio.timeout(WAIT):
        await made.wait_until_back([switch])


async def test_a_switch_is_declared_to_the_next_process_when_no_process_holds_it(
    etcd_server: TestEtcd,
) -> None:
    a, b = Southbound("a"), Southbound("b")
    a.hold("s1", "s2")
    b.hold("s3", down=["s1", "s2"])
    async with Etcd(etcd_server.access()) as etcd, a.serving(etcd), clients(etcd) as made:
        await usable(made, "s1")
        async with b.serving(etcd):
            await usable(made, "s3")
            assert b.declared() == [{"s3"}]
            assert await made.apply(Partition.name, 7, {"s1": []}) == {"s1": Acknowledged()}
            assert any(isinstance(message, Apply) for message in a.heard)
            a.hold("s2")
            await b.until(lambda: b.declared() == [{"s3"}, {"s1"}])
            b.hold("s3", "s1", "s2")  # two hold s2: the first is believed
            await usable(made, "s1")
            await made.apply(Partition.name, 7, {"s1": [], "s2": []})
            asked = [set(m.batch) for s in (a, b) for m in s.heard if isinstance(m, Apply)]
            assert asked == [{"s1"}, {"s2"}, {"s1"}]
            a.hold()
            await b.until(lambda: {"s2"} in b.declared())


async def test_a_switch_is_not_used_while_it_is_declared_again(etcd_server: TestEtcd) -> None:
    a = Southbound("a")
    a.hold("s1")
    async with Etcd(etcd_server.access()) as etcd, a.serving(etcd), clients(etcd) as made:
        await usable(made, "s1")
        a.outcome = Undefined("nobody knows")
        assert await made.apply(Partition.name, 7, {"s1": []}) == {"s1": a.outcome}
        again = await made.apply(Partition.name, 7, {"s1": []})
        assert "is being told what it should hold" in str(again["s1"])
        await usable(made, "s1")
        assert a.declared() == [{"s1"}, {"s1"}]
        assert sum(isinstance(message, Apply) for message in a.heard) == 1


async def test_a_lost_switch_is_behind_until_it_was_declared_again(
    etcd_server: TestEtcd,
) -> None:
    b1 = Southbound("b1")
    async with Etcd(etcd_server.access()) as etcd, b1.serving(etcd), clients(etcd) as made:
        b1.hold("s1")
        await usable(made, "s1")
        assert made.all_caught_up
        b1.hold(down=["s1"])
        made.set_switches(["s1"], ["s1"])

        async def is_behind() -> bool:
            op = FlowOp(Change.DELETE, FlowEntry(1, 100, None))
            assert await made.apply("1.0/all", 7, {"s1": [op]}) == {"s1": Acknowledged()}
            return not made.all_caught_up

        await until(is_behind)
        assert made.all_hold(["s1"])  # nobody waits for a lost switch
        made.set_switches(["s1"], [])
        assert not made.all_hold(["s1"])
        b1.hold("s1")
        await usable(made, "s1")
        assert made.all_caught_up
        assert made.all_hold(["s1"])


async def test_a_process_that_could_not_be_prepared_is_connected_again(
    etcd_server: TestEtcd,
) -> None:
    a, ours = Southbound("a"), Partition()
    a.hold("s1")
    wrong = [DzflowError("nobody expected this")]

    def owned() -> list[Partition]:
        if wrong:
            raise wrong.pop()
        return [ours]

    async with Etcd(etcd_server.access()) as etcd, a.serving(etcd):
        epochs = {ours.name: ours.epoch}
        async with SouthboundClients(
            etcd, TOKEN, "c1", owned, lambda: epochs, print, lambda: 0
        ) as made:
            await usable(made, "s1")
            assert a.declared() == [{"s1"}]


async def test_partitions_show_why_a_switch_does_not_take_their_entries(
    etcd_server: TestEtcd,
) -> None:
    a, ours = Southbound("a"), Partition()
    a.compared = Failed({0: "table full"}, table_full=True)
    a.hold("s2", refusing=["s2"])
    async with Etcd(etcd_server.access()) as etcd, a.serving(etcd), clients(etcd, ours) as made:
        await usable(made, "s2")
        assert not ours.refusals  # it has no entries there
        a.hold("s1", "s2", refusing=["s1", "s2"])
        await usable(made, "s1")
        assert ours.refusals.keys() == {"s1"}
        assert "table full" in ours.refusals["s1"]
        assert not made.all_hold(["s1", "s2"])
        a.hold("s1", "s2")  # there was room later
        await until(lambda: not ours.refusals)
        assert made.all_hold(["s1", "s2"])
        assert not made.all_hold(["s1", "s2", "s3"])


async def test_a_refusal_that_is_over_when_it_is_answered_is_not_shown(
    etcd_server: TestEtcd,
) -> None:
    a, ours = Southbound("a"), Partition()
    a.compared = Failed({0: "table full"}, table_full=True)
    a.hold("s1")  # it has been audited again meanwhile, and takes everything
    async with Etcd(etcd_server.access()) as etcd, a.serving(etcd), clients(etcd, ours) as made:
        await usable(made, "s1")
        assert not ours.refusals
        assert made.all_hold(["s1"])


async def test_the_processes_that_are_waited_for_are_named(etcd_server: TestEtcd) -> None:
    a = Southbound("a")
    a.hold("s1")
    async with Etcd(etcd_server.access()) as etcd, a.serving(etcd):
        away = Process("b", "127.0.0.1:1", 1, "node")  # where nobody is
        await etcd.put(SOUTHBOUND + "b", encode(away))
        async with clients(etcd) as made:
            ours = Partition()
            raising = asyncio.create_task(made.raise_epochs({ours.name: ours.epoch}))
            shown = asyncio.Event()

            def why() -> str:
                shown.set()
                return f"{made.why_not_fenced()}; {made.why_network_missing(2)}"

            await usable(made, "s1")
            with report_long_wait([ours], why, 0.0):
                async with asyncio.timeout(WAIT):
                    await shown.wait()
                assert ours.reason == (
                    "southbound processes are registered, but not reached: b;"
                    " southbound processes have not taken up the network: a, b"
                )
            assert ours.reason is None
            await etcd.delete(SOUTHBOUND + "b")
            async with asyncio.timeout(WAIT):
                await raising
