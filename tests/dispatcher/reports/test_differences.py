"""A network that is not what it should be: each mistake is named, at the right port."""

import pytest
from msgspec.structs import replace

from configurators.state.network import first_network, topology_of, undiscovered_network
from configurators.streams.messages import FoundNetwork
from dispatcher.reports.differences import find_differences
from dispatcher.views import DifferenceView
from sdn.emulator import EmulatedNetwork
from sdn.network.findings import End
from sdn.network.topologies import topology
from sdn.network.topology import Link, Switch, Topology
from tests.dispatcher.whole import whole
from tests.etcd import TestEtcd
from tests.support import until

RING = topology("ring:3")  # h1 is at s1:3, and so on
DOC = first_network(RING, "legs", 1)
ALL = frozenset(switch.id for switch in RING.switches)


def differences(
    links: tuple[Link, ...] = RING.links,
    crossed: tuple[tuple[End, End], ...] = (),
    refused: dict[int, str] | None = None,
    absent: tuple[End, ...] = (),
    up: frozenset[str] = ALL,
) -> list[DifferenceView]:
    report = FoundNetwork("sb1", (), links, crossed, refused or {}, absent)
    return find_differences(DOC, RING, up, [report])


def test_a_network_that_is_as_it_should_be_has_none() -> None:
    assert differences() == []


def test_without_reports_nothing_is_said() -> None:
    assert find_differences(DOC, RING, ALL, []) == []
    nothing = undiscovered_network("legs", 1)
    assert find_differences(nothing, topology_of(nothing), (), [FoundNetwork("sb1", (), ())]) == []


def test_a_link_that_is_not_found_is_missing() -> None:
    (found,) = differences(RING.links[1:])
    assert (found.kind, found.switch, found.port) == ("missing", "s1", RING.links[0].a_port)
    assert "no cable is found between s1:1 and s2:1" in found.text


def test_nothing_is_said_about_links_of_switches_that_are_away() -> None:
    assert differences((), up=frozenset(["s1"])) == []


def test_links_of_several_processes_count_together() -> None:
    reports = [FoundNetwork(f"sb{n}", (), (link,)) for n, link in enumerate(RING.links)]
    assert find_differences(DOC, RING, ALL, reports) == []


def test_a_cable_in_the_wrong_port_is_told_once() -> None:
    one, other = ("s1", 1), ("s3", 1)
    (found,) = differences(
        tuple(link for link in RING.links if not {one, other} & set(link.ends)),
        ((one, other), (other, one)),
    )
    assert found.kind == "crossed"
    assert found.text.startswith("a cable joins s1:1 and s3:1, but s1:1 should lead to s2:1")


def test_a_cable_to_a_switch_at_the_port_of_a_host_is_named() -> None:
    (found,) = differences(crossed=((("s1", 3), ("s2", 9)),))
    assert found.kind == "host-at-link"
    assert found.text == "a cable joins s1:3 and s2:9, but host h1 is declared at s1:3"


def test_a_cable_where_a_host_was_heard_can_be_declared() -> None:
    crossed = ((("s1", 8), ("s2", 9)),)
    (found,) = differences(crossed=crossed)
    assert found.text == "a cable joins s1:8 and s2:9, but a host was heard at one of them"
    doc = replace(DOC, discovered=True)
    report = FoundNetwork("sb1", (), RING.links, crossed)
    (found,) = find_differences(doc, RING, ALL, [report])
    assert found.kind == "crossed"
    assert found.text.endswith("declare the link: `dzflow topology declare s1:8-s2:9`")


def test_a_link_that_nobody_described_is_unexpected() -> None:
    (found,) = differences((*RING.links, Link("s1", 8, "s2", 8)))
    assert found.kind == "unexpected"


def test_a_port_that_a_switch_does_not_have_is_named_with_its_purpose() -> None:
    (found,) = differences(absent=(("s1", 3),))
    assert found.text == "switch s1 has no port 3: host h1 is declared at s1:3"


def test_a_refused_switch_is_named_by_its_datapath_id() -> None:
    (known, unknown) = differences(refused={1: "it is connected already", 77: "nobody knows it"})
    assert (known.kind, known.switch) == ("refused", "s1")
    assert unknown.text == "a switch with datapath id 0x4d was refused: nobody knows it"


# On a running network


SWAPPED = Topology.build(
    [*RING.switches, Switch("stranger", 77)],
    [
        Link("s1", 1, "s3", 1),  # and not to s2:1
        Link("s1", 2, "s3", 2),
        Link("s2", 1, "stranger", 1),
    ],
    [],
    partial=True,
)


async def test_wrong_cables_of_a_running_network_are_shown_and_change_nothing(
    etcd_server: TestEtcd,
) -> None:
    async with (
        whole(etcd_server.access(), "ring:3", cabled=SWAPPED, configurators=1) as w,
        w.dispatcher() as d,
    ):
        doc = first_network(RING, "legs", 1)

        async def told() -> bool:
            kinds = {(one.kind, one.switch) for one in d.status.topology().differences}
            return kinds >= {("crossed", "s1"), ("refused", None), ("no-port", "s1")}

        await until(told)
        texts = " ".join(one.text for one in d.status.differences())
        assert "a cable joins s1:1 and s3:1, but" in texts
        assert "0x4d was refused: no switch of the topology has datapath id 0x4d" in texts
        assert "switch s1 has no port 3: host h1 is declared at s1:3" in texts
        now = d.catalogue.network_doc
        assert now
        assert (now.switches, now.links) == (doc.switches, doc.links)


@pytest.mark.parametrize("discovered", [False, True])
async def test_two_switches_with_one_datapath_id_are_told(
    etcd_server: TestEtcd, discovered: bool
) -> None:
    how = {"discovered": True} if discovered else {"cabled": RING}
    async with whole(etcd_server.access(), "ring:3", configurators=1, **how) as w:
        twin = Topology.build([Switch("twin", 1)], [], [])
        async with w.dispatcher() as d:
            await until(lambda: d.status.switches() and d.health().switches_up == 3)
            async with EmulatedNetwork(twin, w.openflow):

                async def told() -> bool:
                    texts = [one.text for one in d.status.differences() if one.switch == "s1"]
                    return any("two switches have the same datapath id" in text for text in texts)

                await until(told)
                assert d.health().switches_up == 3
