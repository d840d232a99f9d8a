"""Whatever happens in whatever order: never a link that is not there, in the end all that are."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sdn.network.topology import Link, Topology
from sdn.openflow.discovery.hosts import End
from tests.sdn.openflow.cables import Cables, links_of
from tests.strategies import topologies

STEPS = 60


class Course:
    """A network in which ports, cables and connections fail, and one host relays all it hears."""

    def __init__(self, network: Topology, random: Random) -> None:
        self.cables = Cables(network)
        self.random = random
        self.redeclares = random.random() < 0.5
        self.up: set[str] = set()
        self.down_ports: set[End] = set()
        self.ends = [end for link in network.links for end in link.ends]
        self.hosts = [(host.switch, host.port) for host in network.hosts]
        self.cables.discovery.declare_parts(network.hosts[1:])  # the first one is evil and silent

    def step(self) -> None:
        cables, random = self.cables, self.random
        discovery, network = cables.discovery, cables.topology
        switch = random.choice(network.switches).id
        match random.randrange(8):
            case 0:
                ports = [p for p in cables.ports(switch) if (switch, p) not in self.down_ports]
                cables.events += discovery.switch_up(switch, ports)
                self.up.add(switch)
            case 1 if random.random() < 0.3:
                discovery.switch_down(switch)
                self.up.discard(switch)
            case 2 if self.ends:
                end = random.choice(self.ends)
                self.down_ports ^= {end}
                if end[0] in self.up:
                    cables.port(end, up=end not in self.down_ports)
            case 3 if network.links:
                cables.cut ^= {random.choice(network.links)}
            case 4:
                cables.busy ^= {switch}
            case 5 if self.hosts:
                at = random.choice(self.hosts)
                for frame in cables.heard.get(self.hosts[0], [])[-5:]:
                    if at[0] in self.up:
                        cables.arrive(at, frame)
            case 6 if self.ends and self.redeclares:
                links = random.sample(network.links, random.randrange(len(network.links)))
                cables.events += discovery.declare_parts(network.hosts[1:], links)
            case _:
                cables.rounds(random.choice((0.1, 1, 2, 5)))
        discovery.validate()

    def recover(self) -> None:
        cables = self.cables
        cables.cut.clear()
        cables.busy.clear()
        for end in sorted(self.down_ports):
            if end[0] in self.up:
                cables.port(end, up=True)
        cables.connect()
        cables.rounds(8)


@settings(max_examples=60)
@given(topologies(), st.integers(0, 2**32))
def test_links_follow_what_happens_to_them(network: Topology, seed: int) -> None:
    course = Course(network, Random(seed))
    for _ in range(STEPS):
        course.step()
    course.recover()
    cables = course.cables
    assert set(cables.discovery.links()) == set(network.links)
    told: dict[Link, bool] = {}
    for link, up in links_of(cables.events):
        assert link in network.links
        # A link that is declared again and not there is reported as down, even if it was before.
        assert told.get(link) is not up or (course.redeclares and not up), "told already"
        told[link] = up
    assert told == dict.fromkeys(network.links, True)


@settings(max_examples=40)
@given(topologies(), st.integers(0, 2**32))
def test_probes_that_take_their_time_find_the_same_links(network: Topology, seed: int) -> None:
    random, cables = Random(seed), Cables(network)
    under_way: list[tuple[float, End, bytes]] = []
    cables.connect()
    for _ in range(200):
        cables.now += 0.1
        cables.events += cables.discovery.tick(cables.now)
        arrived = [sent for sent in under_way if sent[0] <= cables.now]
        under_way = [sent for sent in under_way if sent[0] > cables.now]
        for _, end, frame in arrived:
            cables.arrive(end, frame)
        for switch, port, frame in cables.discovery.probes(cables.now):
            if peer := cables.peer((switch, port)):
                under_way.append((cables.now + random.uniform(0, 0.9), peer, frame))
        random.shuffle(under_way)
    assert links_of(cables.events) != [] or not network.links
    assert all(up for _, up in links_of(cables.events))
    assert set(cables.discovery.links()) == set(network.links)
