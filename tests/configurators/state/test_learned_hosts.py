"""Which hosts that were heard may join: none that has anything of one that is declared."""

import pytest
from msgspec.structs import replace

from configurators.state.learned_hosts import (
    MAX_HOSTS,
    HostTaken,
    Proposal,
    find_proposals,
    with_accepted,
    with_learned,
)
from configurators.state.network import first_network, topology_of
from configurators.store.model import NetworkDoc
from sdn.network.findings import SeenHost
from sdn.network.switch_limits import SwitchLimits
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, Switch, Topology
from sdn.tables.pipeline import OutOfTables

LINE = topology("line:3")
DECLARED = Host("h1", "s1", 3, "02:00:00:00:00:01", "fd00::1")
DOC = first_network(Topology.build(LINE.switches, LINE.links, [DECLARED]), "legs", 1)
FREE = 40


def heard(number: int = 7, switch: str = "s2", port: int = FREE, **more: str) -> Host:
    given = {"mac": f"02:00:00:00:01:{number:02x}", "ipv6": f"fd00::1:{number:x}"} | more
    return Host(f"host-{given['mac'].replace(':', '')}", switch, port, **given)


def proposals(*hosts: Host, doc: NetworkDoc = DOC) -> list[Proposal]:
    return find_proposals(doc, [SeenHost(host, 1.0) for host in hosts])


def test_a_host_at_a_free_port_may_join_and_is_as_if_declared_then() -> None:
    assert proposals(heard()) == [Proposal(heard(), 1.0)]
    assert proposals() == []
    joined = with_learned(DOC, replace(heard(), id="h9"))
    assert topology_of(joined).host("h9") == replace(heard(), id="h9")
    assert joined.pipeline == DOC.pipeline.extended(topology_of(joined))


@pytest.mark.parametrize(
    ("what", "host"),
    [
        ("MAC", heard(mac=DECLARED.mac or "")),
        ("address", heard(ipv6="fd00:0::0:1")),
        ("id", replace(heard(), id="h1")),
    ],
)
def test_a_host_never_takes_what_a_declared_one_has(what: str, host: Host) -> None:
    [found] = proposals(host)
    assert found.problem
    assert what in found.problem
    assert "h1, which is declared at s1:3" in found.problem
    with pytest.raises(HostTaken, match="h1"):
        with_learned(DOC, host)
    assert with_accepted(DOC, [found]) == DOC


def test_a_host_never_takes_the_id_of_another_one_by_the_choice_of_an_operator() -> None:
    with pytest.raises(HostTaken, match="the id of host h1"):
        with_learned(DOC, replace(heard(), id="h1"))


def test_macs_and_addresses_are_compared_whatever_they_are_written_like() -> None:
    upper = replace(DECLARED, mac="02:00:00:00:00:AB", ipv6="FD00:0:0::AB")
    doc = replace(DOC, hosts=(upper,))
    for host in (heard(mac="02:00:00:00:00:ab"), heard(ipv6="fd00::ab")):
        [found] = proposals(host, doc=doc)
        assert found.problem


def test_what_is_heard_at_a_port_of_the_network_is_not_proposed() -> None:
    link = LINE.links[0]
    at_link = heard(switch=link.a, port=link.a_port)
    at_host = heard(switch="s1", port=3)
    assert proposals(at_link, at_host, heard(switch="s99")) == []
    with pytest.raises(HostTaken, match="h1 is declared at this port"):
        with_learned(DOC, at_host)


def test_what_is_heard_where_a_link_was_found_is_not_proposed() -> None:
    found = Link("s2", FREE, "s3", FREE)
    assert find_proposals(DOC, [SeenHost(heard(), 1.0)], links=[found]) == []


def test_a_host_that_two_processes_have_heard_is_where_it_came_last() -> None:
    old, new = SeenHost(heard(switch="s1"), 1.0), SeenHost(heard(switch="s3"), 2.0)
    for both in ([old, new], [new, old]):
        assert find_proposals(DOC, both) == [Proposal(new.host, 2.0)]


def test_doubts_keep_a_host_from_joining_by_itself_and_an_operator_may_accept_it() -> None:
    together = proposals(heard(1), heard(2))
    alike = proposals(heard(1), heard(2, port=FREE + 1, ipv6="fd00::1:1"))
    crossed = find_proposals(DOC, [SeenHost(heard(), 1.0)], crossed=[("s2", FREE)])
    for found, count in ((together, 2), (alike, 2), (crossed, 1)):
        assert [one.doubt is not None for one in found] == [True] * count
        assert with_accepted(DOC, found) == DOC
        with_learned(DOC, found[0].host)


def test_hosts_without_an_address_are_not_alike() -> None:
    hosts = [replace(heard(n, port=FREE + n), ipv6=None) for n in (1, 2)]
    assert [one.doubt for one in proposals(*hosts)] == [None, None]


def test_hosts_join_by_themselves_as_far_as_they_fit() -> None:
    small = SwitchLimits(tables=(0, 4))  # for admission, two links, one host, and the end
    switches = [replace(one, limits=small) if one.id == "s2" else one for one in LINE.switches]
    doc = first_network(Topology.build(switches, LINE.links, []), "legs", 1)
    hosts = [heard(n, switch=f"s{1 + n % 2}", port=FREE + n) for n in range(6)]
    found = proposals(*hosts, doc=doc)
    joined = with_accepted(doc, found)
    assert [host.switch for host in joined.hosts].count("s1") == 3
    assert [host.switch for host in joined.hosts].count("s2") == 1
    left = proposals(*hosts, doc=joined)
    assert [one.problem is not None for one in left] == [True, True]
    assert "s2 has no table" in (left[0].problem or "")
    with pytest.raises(OutOfTables):
        with_learned(joined, left[0].host)


def test_no_more_hosts_join_by_themselves_than_a_network_may_have() -> None:
    switch = Switch("s1", 1)
    hosts = [Host(f"h{n}", "s1", n + 1) for n in range(MAX_HOSTS - 1)]
    doc = first_network(Topology.build([switch], [], hosts), "lpm", 1)
    found = proposals(heard(1, "s1", 20_000), heard(2, "s1", 20_001), doc=doc)
    assert len(with_accepted(doc, found).hosts) == MAX_HOSTS


def test_what_joined_meanwhile_is_compared_again() -> None:
    found = proposals(heard(1), heard(2, port=FREE + 1))
    joined = with_accepted(DOC, found)
    assert len(joined.hosts) == 3
    with pytest.raises(HostTaken, match="MAC"):
        with_learned(joined, found[0].host)
