"""Links that carry no probes, as an operator says: they are there as long as their ports are up."""

from sdn.network.events import LinkChanged
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link
from tests.sdn.openflow.cables import Cables, links_of

LINE = topology("line:2")
(LINK,) = LINE.links


def declare(cables: Cables, *, unprobed: bool = True, links: tuple[Link, ...] = (LINK,)) -> None:
    hidden = set(links) if unprobed else set()
    cables.events += cables.discovery.declare_parts(
        LINE.hosts,
        [link for link in links if link in hidden],
        expected=[link for link in links if link not in hidden],
        unprobed=hidden,
    )


def without_probes() -> Cables:
    cables = Cables(LINE)
    cables.cut.add(LINK)
    cables.connect()
    return cables


def test_it_is_never_reported_to_be_down() -> None:
    cables = without_probes()
    declare(cables)
    cables.rounds(10)
    end = LINK.ends[0]
    for up in (False, True):
        cables.events += cables.discovery.port_changed(*end, up, cables.now)
        cables.rounds(10)
    assert (LINK, False) not in links_of(cables.events)
    assert cables.discovery.links() == (), "nor to be found"


def test_a_link_that_was_down_counts_again_and_once_probes_are_expected_it_is_down_again() -> None:
    cables = without_probes()
    declare(cables, unprobed=False)
    cables.rounds(10)
    assert links_of(cables.events) == [(LINK, False)]
    declare(cables)
    declare(cables)
    cables.rounds(10)
    assert links_of(cables.events) == [(LINK, False), (LINK, True)]
    declare(cables, unprobed=False)
    cables.rounds(10)
    assert links_of(cables.events) == [(LINK, False), (LINK, True), (LINK, False)]


def test_a_link_that_carries_probes_all_the_same_is_found_and_stays_when_they_end() -> None:
    cables = Cables(LINE)
    cables.connect()
    declare(cables)
    cables.rounds()
    assert cables.discovery.links() == (LINK,)
    declare(cables)
    assert cables.discovery.links() == (LINK,)
    before = list(cables.events)
    cables.cut.add(LINK)
    cables.rounds(10)
    assert cables.events == before


def test_its_ports_lead_nowhere_else() -> None:
    ring = topology("ring:3")
    link = Link("s1", 1, "s3", 2)  # and probes say that s1:1 leads to s2
    cables = Cables(ring)
    declare(cables, links=(link,))
    cables.connect()
    cables.rounds(3)
    assert LinkChanged(ring.links[0], up=True) not in cables.events
    assert ("s1", 1) in cables.discovery.crossed(cables.now)


def test_a_host_may_be_declared_where_it_was() -> None:
    cables = without_probes()
    declare(cables)
    cables.discovery.declare_parts([Host("h9", *LINK.ends[0])])
    cables.rounds(3)
    cables.discovery.validate()
    assert cables.discovery.links() == ()
