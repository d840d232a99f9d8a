from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdn.lab.errors import BadController
from sdn.lab.plan import TAGS, Certificates, LabPlan, check_controllers, group_of, tag_of
from sdn.network.topology import Host, Link, Switch, Topology, UnknownSwitch
from tests.strategies import topologies

TAG = tag_of(12_345)
LONG = "a-name.that_is-as-long-as-an-id-may-be-and-so-no-name-of-a-port"


def pair(*hosts: Host) -> Topology:
    return Topology.build([Switch("s1", 1), Switch("s2", 2)], [Link("s1", 1, "s2", 1)], list(hosts))


@given(st.sets(st.integers(0, TAGS - 1), min_size=2, max_size=50))
def test_each_lab_has_a_name_and_an_interface_group_of_its_own(numbers: set[int]) -> None:
    tags = {tag_of(number) for number in numbers}
    assert len(tags) == len(numbers)
    assert len({group_of(tag) for tag in tags}) == len(numbers)
    assert all(0 < group_of(tag) < 1 << 31 for tag in tags)


@given(topologies())
def test_names_of_kernel_interfaces_are_unique_and_short_enough(topology: Topology) -> None:
    plan = LabPlan.of(TAG, topology)
    names = [site.port_name for site in plan.sites.values()]
    names += [plan.bridge(switch.id) for switch in topology.switches]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 15 and name.startswith(TAG) for name in names)


def test_the_longest_ids_give_names_that_are_short_enough() -> None:
    topology = Topology.build([Switch(LONG, 1)], [], [Host(LONG, LONG, 65_279)])
    plan = LabPlan.of(TAG, topology)
    assert len(plan.bridge(LONG)) <= 15
    assert len(plan.sites[LONG].port_name) <= 15


@given(topologies())
def test_both_ends_of_a_link_name_each_other(topology: Topology) -> None:
    plan = LabPlan.of(TAG, topology)
    peers = {}
    for words in plan.network((), ("OpenFlow13",), None):
        for word in words:
            if word.startswith("options:peer="):
                peers[words[2]] = word.removeprefix("options:peer=")
    assert len(peers) == 2 * len(topology.links)
    assert all(peers[peer] == port for port, peer in peers.items())


def test_a_host_has_the_addresses_that_the_topology_gives_it() -> None:
    plan = LabPlan.of(TAG, pair(Host("h1", "s1", 2, mac="02:00:00:00:00:07", ipv6="2001:db8::7")))
    assert plan.sites["h1"].mac == "02:00:00:00:00:07"
    assert plan.sites["h1"].ipv6 == "2001:db8::7"


def test_a_host_without_addresses_gets_the_same_ones_each_time() -> None:
    topology = pair(Host("h1", "s1", 2), Host("h2", "s2", 2))
    sites = LabPlan.of(TAG, topology).sites
    assert (sites["h1"].mac, sites["h1"].ipv6) == ("02:d2:00:00:00:01", "fd00:d2::1")
    assert (sites["h2"].mac, sites["h2"].ipv6) == ("02:d2:00:00:00:02", "fd00:d2::2")


def test_no_host_gets_an_address_that_another_was_given() -> None:
    given_one = Host("h2", "s2", 2, mac="02:D2:00:00:00:01", ipv6="FD00:00D2::0001")
    sites = LabPlan.of(TAG, pair(Host("h1", "s1", 2), given_one)).sites
    assert sites["h1"].mac.lower() != "02:d2:00:00:00:01"
    assert sites["h1"].ipv6 != "fd00:d2::1"


def test_only_switches_of_the_topology_have_bridges() -> None:
    with pytest.raises(UnknownSwitch):
        LabPlan.of(TAG, pair()).bridge("s3")


@pytest.mark.parametrize("target", ["tcp:127.0.0.1:6653", "tcp:[::1]:1", "tcp:10.0.0.1:65535"])
def test_controllers_are_addresses_with_ports(target: str) -> None:
    assert check_controllers([target], None) == (target,)


@pytest.mark.parametrize(
    "target",
    [
        *("", "127.0.0.1:6653", "tcp:localhost:6653", "tcp:127.0.0.1", "tcp:127.0.0.1:0"),
        *("tcp:127.0.0.1:65536", "tcp:::1:6653", "tcp:[1.2.3.4]:1", "tcp:1.2.3:1", "udp:1.2.3.4:1"),
        *('tcp:127.0.0.1:1" other', "ptcp:6653"),
    ],
)
def test_other_controllers_are_refused(target: str) -> None:
    with pytest.raises(BadController, match="is not like"):
        check_controllers([target], None)


def test_a_controller_with_tls_needs_certificates() -> None:
    with pytest.raises(BadController, match="certificates"):
        check_controllers(["ssl:127.0.0.1:6653"], None)


def test_certificates_are_named_by_absolute_paths() -> None:
    tls = Certificates(Path("key.pem"), Path("cert.pem"), Path("ca.pem"))
    command, *files = LabPlan.of(TAG, pair()).network((), ("OpenFlow13",), tls)[0]
    assert command == "set-ssl"
    assert [Path(file).name for file in files] == ["key.pem", "cert.pem", "ca.pem"]
    assert all(Path(file).is_absolute() for file in files)


def test_a_switch_is_told_each_of_several_controllers() -> None:
    targets = ["tcp:127.0.0.1:6653", "tcp:127.0.0.1:6654"]
    *made, last = LabPlan.of(TAG, pair()).connect("s1", targets)
    assert [words[3] for words in made] == [f'target="{target}"' for target in targets]
    first, second = (words[0].removeprefix("--id=") for words in made)
    assert first != second
    assert last == ["set", "bridge", f"{TAG}-s1", f"controller={first},{second}"]
