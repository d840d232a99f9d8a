"""The topology as ONOS tells it."""

import pytest

from sdn.network.topology import Host, Link, NotConnected, Switch, Topology
from sdn.onos.discovery import build
from sdn.onos.wire import (
    Device,
    Devices,
    DirectedLink,
    FoundHost,
    Hosts,
    LinkEnd,
    Links,
    Location,
    device_id,
)

S1, S2, S3 = (device_id(dpid) for dpid in (1, 2, 300))
MAC = "02:00:00:00:00:0A"


def link(a: str, a_port: int | str, b: str, b_port: int | str, **more: str) -> DirectedLink:
    return DirectedLink(LinkEnd(a_port, a), LinkEnd(b_port, b), **more)


def devices(*ids: str) -> Devices:
    return Devices([Device(one) for one in ids])


BOTH = Links([link(S1, "1", S2, "[s2-eth2](2)"), link(S2, 2, S1, 1)])


def test_both_directions_of_a_link_are_one() -> None:
    found = build(devices(S1, S2), BOTH, Hosts([]))
    assert found.switches == (Switch("s1", 1), Switch("s2", 2))
    assert found.links == (Link("s1", 1, "s2", 2),)


def test_only_openflow_switches_that_are_connected_count() -> None:
    known = [
        Device(S1),
        Device(S2),
        Device(S3, available=False),
        Device(device_id(4), type="ROADM"),
        Device("netconf:10.0.0.1:830"),
    ]
    away = link(S1, 5, S3, 1)
    assert build(Devices(known), Links([*BOTH.links, away]), Hosts([])).switches == (
        Switch("s1", 1),
        Switch("s2", 2),
    )


def test_links_that_carry_nothing_are_left_out() -> None:
    idle = [link(S1, 3, S2, 3, state="INACTIVE"), link(S1, 4, S2, 4, type="TUNNEL")]
    assert len(build(devices(S1, S2), Links([*BOTH.links, *idle]), Hosts([])).links) == 1


def test_switches_without_a_link_between_them_are_no_network() -> None:
    with pytest.raises(NotConnected):
        build(devices(S1, S2), Links([]), Hosts([]))


def test_hosts_are_where_onos_saw_them() -> None:
    hosts = [
        FoundHost(MAC, ("10.0.0.1", "fe80::a", "fd00::a"), (Location(S1, "[h](7)"),)),
        FoundHost("02:00:00:00:00:0B", (), (), Location(S2, 7)),
        FoundHost("02:00:00:00:00:0C", (), (Location(S3, 7),)),  # behind a switch that is away
        FoundHost("02:00:00:00:00:0D", (), (Location(S1, 1),)),  # on the port of a link
        FoundHost("02:00:00:00:00:0E", (), (Location(S2, 7),)),  # on a port with another host
        FoundHost("02:00:00:00:00:0F"),
    ]
    assert build(devices(S1, S2), BOTH, Hosts(hosts)).hosts == (
        Host("h-02000000000a", "s1", 7, "02:00:00:00:00:0a", "fd00::a"),
        Host("h-02000000000b", "s2", 7, "02:00:00:00:00:0b"),
    )


def test_known_switches_and_hosts_keep_their_names() -> None:
    known = Topology.build(
        [Switch("left", 1), Switch("right", 2)],
        [Link("left", 1, "right", 2)],
        [Host("alice", "right", 9, MAC.lower()), Host("bob", "right", 8)],
    )
    moved = FoundHost(MAC, (), (Location(S1, 7),))
    same_port = FoundHost("02:00:00:00:00:0B", (), (Location(S2, 8),))
    found = build(devices(S1, S2), BOTH, Hosts([moved, same_port]), known)
    assert [(host.id, host.switch, host.port) for host in found.hosts] == [
        ("alice", "left", 7),
        ("bob", "right", 8),
    ]
    assert found.links == known.links
