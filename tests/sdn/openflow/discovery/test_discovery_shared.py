"""Several processes with one key find the links between each other's switches."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdn.network.events import LinkChanged, NetworkEvent
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, Topology
from sdn.openflow.discovery.discovery import Discovery
from sdn.openflow.discovery.frames import build_probe, read_probe
from sdn.openflow.discovery.hosts import End
from tests.sdn.openflow.cables import KEY, address_check, port_mac
from tests.strategies import topologies

LINE = topology("line:2")
(LINK,) = LINE.links
A, B = LINK.ends  # of s1, and of s2


class Processes:
    """A discovery for each process; probes travel over the cables of a topology, at once."""

    def __init__(
        self, network: Topology, owners: dict[str, int], keys: tuple[bytes, ...] = (KEY, KEY)
    ) -> None:
        self.network = network
        self.owners = owners
        self.discoveries = [
            Discovery(key, first_nonce=1 + 1_000_000 * number) for number, key in enumerate(keys)
        ]
        self.events: list[list[NetworkEvent]] = [[] for _ in keys]
        self.now = 1000.0
        self.cut: set[Link] = set()
        self.frames: list[tuple[End, bytes]] = []  # all that were sent
        self.silent: set[int] = set()  # processes that send nothing
        for switch in network.switches:
            self.connect(switch.id)

    def of(self, switch: str) -> Discovery:
        return self.discoveries[self.owners[switch]]

    def connect(self, switch: str) -> None:
        numbers = [*self.network.switch_ports(switch)]
        numbers += [host.port for host in self.network.hosts_at(switch)]
        macs = {number: port_mac((switch, number)) for number in numbers}
        self._note(self.owners[switch], self.of(switch).switch_up(switch, numbers, macs))

    def move(self, switch: str) -> None:
        """A switch goes over to the other process."""
        self.of(switch).switch_down(switch)
        self.owners[switch] = 1 - self.owners[switch]
        self.connect(switch)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            wakes = [discovery.wake_at(self.now) for discovery in self.discoveries]
            due = min((wake for wake in wakes if wake is not None), default=None)
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            for number, discovery in enumerate(self.discoveries):
                self._note(number, discovery.tick(self.now))
                discovery.validate()
            # What is sent at the same moment crosses on the cable.
            sent = [
                ((switch, port), frame)
                for number, discovery in enumerate(self.discoveries)
                for switch, port, frame in discovery.probes(self.now)
                if number not in self.silent
            ]
            for end, frame in sent:
                self.carry(end, frame)
        self.now = until

    def rounds(self, count: float) -> None:
        self.run(count * self.discoveries[0].limits.interval)

    def carry(self, end: End, frame: bytes) -> None:
        self.frames.append((end, frame))
        link = self.network.at(*end)
        if isinstance(link, Link) and link not in self.cut:
            one, other = link.ends
            self.arrive(other if end == one else one, frame)

    def arrive(self, end: End, frame: bytes) -> None:
        number = self.owners[end[0]]
        self._note(number, self.of(end[0]).packet_in(*end, frame, self.now))

    def _note(self, number: int, events: list[NetworkEvent]) -> None:
        self.events[number] += events

    def found(self) -> list[set[Link]]:
        return [set(discovery.links()) for discovery in self.discoveries]

    def confirmed(self) -> list[set[Link]]:
        return [set(discovery.confirmed_links()) for discovery in self.discoveries]


def linked(keys: tuple[bytes, ...] = (KEY, KEY)) -> Processes:
    """Two switches of two processes, and the cable between them."""
    both = Processes(LINE, {"s1": 0, "s2": 1}, keys)
    both.rounds(3)
    return both


def test_both_processes_find_the_link_between_their_switches() -> None:
    both = linked()
    assert both.found() == [{LINK}, {LINK}]
    both.rounds(20)
    assert both.events == [[LinkChanged(LINK, up=True)]] * 2


def test_it_is_found_soon_after_the_second_switch_is_there() -> None:
    both = Processes(LINE, {"s1": 0, "s2": 1})
    both.run(0.6)
    assert both.found() == [{LINK}, {LINK}]


def test_processes_with_other_keys_do_not_find_it() -> None:
    assert linked((KEY, bytes(32))).found() == [set(), set()]


@settings(max_examples=50)
@given(topologies(), st.randoms(use_true_random=False))
def test_exactly_the_links_of_any_network_are_found_whoever_has_which_switch(
    network: Topology, random: object
) -> None:
    choose: Callable[[tuple[int, ...]], int] = random.choice  # type: ignore[attr-defined]
    owners = {switch.id: choose((0, 1)) for switch in network.switches}
    both = Processes(network, owners)
    both.rounds(4)
    assert set.union(*both.found()) == set(network.links)
    for number, found in enumerate(both.found()):
        mine = {link for link in network.links if number in (owners[link.a], owners[link.b])}
        assert found == mine
    both.rounds(10)
    for events in both.events:
        assert all(isinstance(event, LinkChanged) and event.up for event in events)


def test_a_link_that_carries_no_probes_any_more_is_gone_for_both() -> None:
    both = linked()
    both.cut.add(LINK)
    both.rounds(6)
    assert both.found() == [set(), set()]
    both.cut.clear()
    both.rounds(2)
    assert both.found() == [{LINK}, {LINK}]


def test_a_switch_that_goes_over_to_another_process_keeps_its_links() -> None:
    both = Processes(topology("ring:3"), {"s1": 0, "s2": 0, "s3": 1})
    both.rounds(3)
    for switch in ("s2", "s3", "s2", "s1"):
        both.move(switch)
        both.rounds(5)
        assert set.union(*both.found()) == set(both.network.links)
    assert not [e for events in both.events for e in events if e == LinkChanged(LINK, up=False)]


def test_a_process_vouches_for_no_link_that_it_does_not_probe_any_more() -> None:
    both = Processes(topology("ring:3"), {"s1": 0, "s2": 0, "s3": 1})
    both.rounds(3)
    links = set(both.network.links)
    assert both.confirmed()[0] == links
    both.move("s2")
    assert LINK not in both.confirmed()[0], "it would not notice that it is gone"
    both.rounds(3)
    assert both.confirmed() == [{link for link in links if "s1" in (link.a, link.b)}, links]
    both.discoveries[0].switch_down("s2")  # which it does not have any more
    assert both.confirmed()[0] == {link for link in links if "s1" in (link.a, link.b)}
    both.move("s1")
    both.rounds(3)
    assert both.confirmed() == [set(), links]
    # Back again, a link that is gone meanwhile is none that it has found.
    both.cut.add(LINK)
    both.move("s1")
    both.move("s2")
    both.rounds(3)
    assert both.confirmed()[0] == links - {LINK}


def test_a_port_of_a_declared_host_leads_to_no_switch_of_another_process() -> None:
    both = Processes(LINE, {"s1": 0, "s2": 1})
    both.discoveries[1].declare_parts([Host("h", *B)])
    both.rounds(4)
    assert both.found() == [set(), set()]


# Attacks: a host knows frames that it has seen, and sends them wherever it is.


def test_frames_that_are_replayed_to_a_port_make_no_link() -> None:
    both = linked()
    heard = [frame for end, frame in both.frames if end == B]
    both.cut.add(LINK)
    both.rounds(6)
    assert both.found() == [set(), set()]
    for frame in heard:
        both.arrive(A, frame)
    both.rounds(1)
    assert both.found() == [set(), set()]


def test_frames_are_no_use_after_a_restart_either() -> None:
    both = linked()
    heard = [frame for end, frame in both.frames if end == B]
    both.discoveries[0] = Discovery(KEY, first_nonce=10**9)
    both.cut.add(LINK)
    both.connect("s1")
    both.run(0.5)
    for frame in heard:
        both.arrive(A, frame)
    assert both.found()[0] == set()


def test_a_frame_that_is_changed_or_forged_makes_no_link() -> None:
    both = Processes(LINE, {"s1": 0, "s2": 1})
    both.cut.add(LINK)
    both.run(0.5)
    (frame,) = [frame for end, frame in both.frames if end == A][-1:]
    probe = read_probe(frame)
    assert probe
    both.arrive(A, build_probe(bytes(32), *B, 7, probe.nonce))
    both.arrive(A, frame)  # its own, reflected
    assert both.found() == [set(), set()]
    assert both.discoveries[0].counters.lldp_forged == 1
    assert both.discoveries[0].counters.lldp_reflected == 1


@pytest.mark.parametrize("ends", [1, 2])
def test_a_switch_of_another_process_that_speaks_itself_is_no_host(ends: int) -> None:
    both = Processes(LINE, {"s1": 0, "s2": 1})
    for end, far in ((A, B), (B, A))[:ends]:
        both.arrive(end, address_check(port_mac(far).hex(":")))
    both.rounds(2)
    assert both.found() == [{LINK}, {LINK}]
    assert [discovery.hosts() for discovery in both.discoveries] == [(), ()]


def test_a_port_in_a_link_gets_no_second_peer_from_another_process() -> None:
    both = Processes(topology("ring:3"), {"s1": 0, "s2": 0, "s3": 1})
    both.rounds(3)
    (third,) = [
        link for link in both.network.links if "s3" in (link.a, link.b) and "s1" in (link.a, link.b)
    ]
    own = next(link for link in both.network.links if {link.a, link.b} == {"s1", "s2"})
    (at,) = [end for end in own.ends if end[0] == "s1"]
    (far,) = [end for end in third.ends if end[0] == "s3"]
    for end, frame in list(both.frames):
        if end == far:
            both.arrive(at, frame)
    assert both.discoveries[0].counters.lldp_conflict > 0
    assert own in both.found()[0]


@pytest.mark.parametrize("silent", [0, 1])
def test_the_process_that_goes_on_reports_the_links_to_a_silent_one(silent: int) -> None:
    both = linked()
    both.silent.add(silent)
    both.rounds(6)
    assert both.events[1 - silent][-1] == LinkChanged(LINK, up=False)


def test_an_expected_link_that_carries_no_probes_is_reported_and_frees_its_ports() -> None:
    old = Link("s1", A[1], "s2", 9)
    one = Discovery(KEY)
    one.declare_parts((), expected=[old])
    both = Processes(LINE, {"s1": 0, "s2": 0}, (KEY,))
    both.discoveries[0] = one
    one.switch_up("s1", [A[1]])
    one.switch_up("s2", [B[1], 9])
    both.rounds(8)
    assert LinkChanged(old, up=False) in both.events[0]
    assert both.found() == [{LINK}]
