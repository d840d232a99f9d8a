"""Tables of hosts that are gone go to other hosts; no event is lost or goes astray meanwhile."""

from collections import deque
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from configurators.ownership.ownership import Mode
from configurators.store.documents import decode_network, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import NETWORK
from configurators.store.model import NetworkDoc
from dispatcher.calls import RecordSpec
from dispatcher.changes.damping import Patience
from dispatcher.changes.table_reuse import numbers_to_free
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Unavailable
from dzflow import ControlPlane
from dzflow.sdk.events import datagrams
from sdn.network.topologies import topology
from sdn.network.topology import Host, ToHost, Topology
from sdn.tables.pipeline import OutOfTables, Pipeline
from tests.dispatcher.support import SCHEMA, TIMEOUT
from tests.dispatcher.whole import Whole, whole
from tests.dzflow.sdk.support import prices
from tests.etcd import TestEtcd
from tests.stack import Stack, StackOptions
from tests.support import WAIT, until, until_sync

SOON = Patience(down_after=0.3, absent_after=20.0, back_after=0.3)
HEADERS = 14 + 40 + 8  # bytes of Ethernet, IPv6 and UDP
GUESTS = 300  # more than a switch has tables
AT_ONCE = 4
LINE = topology("line:2")


# When it is time


def gone(count: int, stay: int = 0) -> tuple[Pipeline, Topology]:
    """So many hosts have gone from s1, and others have come and stay; it has 28 tables for legs."""
    network = LINE
    for port in range(40, 40 + stay + count):
        network = network.with_host(Host(f"g{port}", "s1", port))
    tables = Pipeline(table_count=30).extended(network)
    for port in range(40 + stay, 40 + stay + count):
        network = network.without_host(f"g{port}")
    return tables, network


@pytest.mark.parametrize(
    ("count", "stay", "least", "due"),
    [
        (0, 0, 4, False),
        (3, 0, 4, False),
        (4, 0, 4, True),  # some have gathered
        (1, 21, 4, True),  # hardly any room is left
        (1, 21, 3, False),
        (0, 24, 4, False),  # nobody has gone
    ],
)
def test_tables_are_freed_when_some_have_gathered_or_few_are_left(
    count: int, stay: int, least: int, due: bool
) -> None:
    tables, network = gone(count, stay)
    found = numbers_to_free(tables, network, frozenset(), least)
    assert {switch: len(numbers.tables) for switch, numbers in found.items()} == (
        {"s1": count} if due else {}
    )


def test_a_lost_switch_keeps_its_numbers() -> None:
    tables, network = gone(9)
    assert numbers_to_free(tables, network, frozenset({"s2"}), 4)
    assert not numbers_to_free(tables, network, frozenset({"s1"}), 4)


# In the service


async def stored_network(access: Access) -> NetworkDoc:
    async with Etcd(access) as etcd:
        stored = await etcd.get(NETWORK)
    assert stored
    return decode_network(stored.value)


class Frames:
    """The prices in all events that the switches have sent to each host."""

    def __init__(self) -> None:
        self.prices: dict[str, list[int]] = {}

    def __call__(self, host: str, frame: bytes) -> None:
        found = datagrams.decode(frame[HEADERS:])
        if found:
            self.prices.setdefault(host, []).append(found.event["price"])


@pytest.mark.parametrize("mode", ["sna", "sea"])
def test_more_hosts_than_tables_come_and_go_while_events_flow(
    etcd_server: TestEtcd, mode: Mode
) -> None:
    options = StackOptions(topology="line:2", mode=mode, configurators=2)
    guests = GUESTS if mode == "sna" else 40
    with (
        Stack(etcd_server.access(), options) as stack,
        ControlPlane(stack.url, "h1", timeout=WAIT) as publisher,
        ControlPlane(stack.url, "h2", timeout=WAIT) as steady,
    ):
        frames = stack.network.on_frame = Frames()
        publisher.put_space("stocks", SCHEMA)
        events = steady.subscribe("stocks", {})
        advertised = publisher.advertise("stocks", {})
        rest = publisher.rest
        expected: dict[str, list[int]] = {}
        present: deque[tuple[str, str, int]] = deque()  # host, subscription, third
        sent: list[int] = []

        def publish() -> None:
            """Three events; a guest gets those of its own third of the prices."""
            for third in range(3):
                # Away from the limits, around which the index may let events through.
                price = third * 300 + 100 + len(sent) % 100
                sent.append(price)
                for host, _, wanted in present:
                    if wanted == third:
                        expected.setdefault(host, []).append(price)
                advertised.publish({"price": price, "volume": 1, "symbol": "ACME"})
            assert prices(events, 3) == sent[-3:]

        for number in range(guests):
            host, third = f"g{number}", number % 3
            rest.put(f"/hosts/{host}", {"switch": "s1", "port": 40 + number})
            if number % 4:  # most do not stay for long
                rest.delete(f"/hosts/{host}")
                continue
            wanted = {"price": {"gte": third * 300, "lt": (third + 1) * 300}}
            made = rest.begin("subscription", host, "stocks", wanted)
            assert made["state"] == "active"
            present.append((host, made["id"], third))
            publish()
            if len(present) == AT_ONCE:
                leaving, subscription, _ = present.popleft()
                rest.end("subscription", subscription)
                publish()
                rest.delete(f"/hosts/{leaving}")
        until_sync(lambda: sum(map(len, frames.prices.values())) >= len(sent) + _count(expected))
        assert frames.prices.pop("h2") == sent
        assert {host: sorted(found) for host, found in frames.prices.items()} == {
            host: sorted(found) for host, found in expected.items()
        }
        tables = stack.run(stored_network(stack.access)).pipeline.tables["s1"]
        assert len(tables) < guests, "numbers were used again"


def _count(expected: dict[str, list[int]]) -> int:
    return sum(map(len, expected.values()))


async def has_table(w: Whole, switch: str, host: str) -> bool:
    """Whether a host has a table of a switch, present or not."""
    return ToHost(host) in (await stored_network(w.access)).pipeline.tables[switch]


async def subscribe(d: Dispatcher, host: str) -> None:
    [made] = await d.begin("subscription", [RecordSpec(host, "stocks", {})], wait=TIMEOUT)
    assert made.status == 201


@pytest.mark.parametrize("mode", ["sna", "sea"])
async def test_a_lost_switch_keeps_tables_until_it_is_back_and_they_are_empty(
    etcd_server: TestEtcd, mode: Mode
) -> None:
    async with AsyncExitStack() as stack:
        w = await stack.enter_async_context(whole(etcd_server.access(), "line:2", mode=mode))
        doc = await stored_network(w.access)
        small = replace(doc, pipeline=replace(doc.pipeline, table_count=5))
        await w.etcd.put(NETWORK, encode(small))
        options = {"patience": SOON, "grace": 0.2, "reuse_from": 1}
        d = await stack.enter_async_context(w.dispatcher(**options))
        await d.put_space("stocks", SCHEMA)
        await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT)
        await d.hosts.put(Host("guest", "s2", 40))
        await subscribe(d, "guest")
        with pytest.raises(OutOfTables):
            await d.hosts.put(Host("another", "s2", 41))
        w.network.agents["s2"].drop()

        async def lost() -> bool:
            return (await stored_network(w.access)).lost.switches == ("s2",)

        await until(lost)
        await d.hosts.put(Host("guest", "s1", 40))
        with pytest.raises(Unavailable, match="those of 1 hosts that are gone become free when"):
            await d.hosts.put(Host("another", "s2", 41))
        assert await has_table(w, "s2", "guest")
        held = w.network.switches["s2"].entries()
        assert len([entry for entry in held if entry.table == 3]) == 2, "it still has an entry"
        w.network.agents["s2"].come_back()

        async def free() -> bool:
            return not await has_table(w, "s2", "guest")

        await until(free)
        await d.hosts.put(Host("another", "s2", 41))
        await subscribe(d, "another")
        pipeline = (await stored_network(w.access)).pipeline
        assert pipeline.table("s2", ToHost("another")) == 3
        await w.check_flows(d)


async def test_when_the_dispatcher_that_frees_tables_is_gone_another_does(
    etcd_server: TestEtcd,
) -> None:
    async with AsyncExitStack() as stack:
        w = await stack.enter_async_context(whole(etcd_server.access(), "line:2"))
        second = await stack.enter_async_context(w.dispatcher(id="b", reuse_from=1))
        async with w.dispatcher(id="a", reuse_from=1000):
            await until(lambda: len(second.health().dispatchers) == 2)
            await second.hosts.put(Host("guest", "s2", 40))
            await second.hosts.delete("guest")
            await second.hosts.put(Host("other", "s2", 41))
            assert await has_table(w, "s2", "guest")

        async def free() -> bool:
            return not await has_table(w, "s2", "guest")

        await until(free)
