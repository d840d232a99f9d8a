"""Hosts that want to be taken for switches: what they try adds nothing."""

import logging
import struct
from random import Random

import pytest

from sdn.network.events import NetworkEvent
from sdn.network.topologies import topology
from sdn.openflow.discovery import prober
from sdn.openflow.discovery.discovery import Discovery
from sdn.openflow.discovery.frames import build_probe, read_probe
from sdn.openflow.discovery.hosts import End
from sdn.openflow.discovery.limits import DiscoveryLimits
from sdn.openflow.discovery.prober import MAX_WARNINGS
from tests.sdn.openflow.cables import (
    ADDRESS,
    KEY,
    MAC,
    Cables,
    address_check,
    advertisement,
    hosts_of,
    links_of,
    solicitation,
    with_checksum,
)
from tests.support import warnings_of

CASES = 100_000
NETWORK = topology("ring:4")
HOSTS: list[End] = [(host.switch, host.port) for host in NETWORK.hosts]
EVIL, ACCOMPLICE = HOSTS[0], HOSTS[2]
ENDLESS = DiscoveryLimits(port_rate=1e9, port_burst=10**9, total_rate=1e9, total_burst=10**9)


@pytest.fixture
def cables() -> Cables:
    """A network that is known, in which hosts have not shown themselves."""
    cables = Cables(NETWORK)
    cables.connect()
    cables.rounds()
    assert len(cables.discovery.links()) == 4
    return cables


def relay(cables: Cables, frames: dict[End, End], rounds: int = 6) -> list[NetworkEvent]:
    """Let hosts hand on at once what they hear, each at the port of another."""
    start = len(cables.events)
    for _ in range(rounds * 10):
        cables.run(cables.interval / 10)
        for source, target in frames.items():
            for frame in cables.heard.pop(source, []):
                cables.arrive(target, frame)
    return cables.events[start:]


def test_forged_probes_add_nothing(cables: Cables) -> None:
    claims = [
        build_probe(bytes(32), *claimed, nonce)
        for claimed in (*HOSTS, *(end for link in NETWORK.links for end in link.ends))
        for nonce in range(3)
    ]
    for frame in claims:
        assert cables.arrive(EVIL, frame) == []
        cables.run(0.1)
    assert cables.discovery.counters.lldp_forged == len(claims)


def test_a_changed_probe_adds_nothing(cables: Cables) -> None:
    cables.rounds()
    frame = cables.heard[EVIL][-1]
    probe = read_probe(frame)
    assert probe
    for field in (struct.pack("!Q", probe.nonce), struct.pack("!I", probe.port), b"s1"):
        at = frame.rindex(field)
        for value in range(256):
            changed = frame[:at] + bytes((value,)) + frame[at + 1 :]
            if changed != frame:
                assert cables.arrive(ACCOMPLICE, changed) == []
            cables.run(0.05)
    counters = cables.discovery.counters
    assert counters.lldp_replayed == 0
    assert counters.lldp_forged + counters.lldp_foreign == 3 * 255


def test_reflected_probes_add_nothing(cables: Cables) -> None:
    assert relay(cables, {EVIL: EVIL}) == []
    assert cables.discovery.counters.lldp_reflected >= 5


def test_a_replayed_probe_counts_once_in_its_round_and_never_later(cables: Cables) -> None:
    cables.run(cables.interval)
    frame = cables.heard[EVIL][-1]
    accepted = cables.discovery.counters.probes_accepted
    assert cables.arrive(ACCOMPLICE, frame) == []  # the first half of a link, no more
    assert cables.discovery.counters.probes_accepted == accepted + 1
    for _ in range(3):
        assert cables.arrive(ACCOMPLICE, frame) == []  # in the same round
    cables.rounds(2)
    for _ in range(3):
        assert cables.arrive(ACCOMPLICE, frame) == []  # in a later one
    assert cables.discovery.counters.lldp_replayed == 6


def test_probes_of_an_old_round_add_nothing_though_nobody_has_seen_them(cables: Cables) -> None:
    cables.rounds(4)
    old = {end: frames[:-1] for end, frames in cables.heard.items()}
    for frame in old[EVIL]:
        assert cables.arrive(ACCOMPLICE, frame) == []
    for frame in old[ACCOMPLICE]:
        assert cables.arrive(EVIL, frame) == []
    assert cables.discovery.counters.lldp_replayed == len(old[EVIL]) + len(old[ACCOMPLICE])


def test_probes_of_another_process_add_nothing(cables: Cables) -> None:
    earlier = Discovery(KEY[::-1])
    earlier.switch_up(EVIL[0], [EVIL[1]])
    ((_, _, frame),) = earlier.probes(0)
    assert cables.arrive(ACCOMPLICE, frame) == []
    assert cables.discovery.counters.lldp_forged == 1


def test_probes_that_one_host_carries_elsewhere_add_nothing(cables: Cables) -> None:
    assert relay(cables, {EVIL: ACCOMPLICE}) == []
    for host in HOSTS[1:]:
        assert relay(cables, {EVIL: host}, rounds=1) == []


def test_probes_carried_in_turns_add_nothing(cables: Cables) -> None:
    # First all of one direction, then all of the other: neither is fresh when the other is.
    assert relay(cables, {EVIL: ACCOMPLICE}) == []
    cables.rounds(3)
    cables.heard.clear()
    assert relay(cables, {ACCOMPLICE: EVIL}) == []


def test_probes_carried_in_a_circle_add_nothing(cables: Cables) -> None:
    assert relay(cables, {HOSTS[0]: HOSTS[1], HOSTS[1]: HOSTS[2], HOSTS[2]: HOSTS[0]}) == []


def test_what_two_silent_hosts_can_do_is_what_the_documentation_says(cables: Cables) -> None:
    both = {EVIL: ACCOMPLICE, ACCOMPLICE: EVIL}
    assert [up for _, up in links_of(relay(cables, both))] == [True]
    # And it ends as soon as they do.
    assert [up for _, up in links_of(cables.rounds(6))] == [False]


@pytest.mark.parametrize("known", [EVIL, ACCOMPLICE])
def test_a_port_where_a_host_was_seen_never_becomes_a_link(cables: Cables, known: End) -> None:
    cables.run(cables.interval)
    held = {end: frames[-1] for end, frames in cables.heard.items()}
    assert len(hosts_of(cables.arrive(known, advertisement()))) == 1
    # Also with probes that were under way when it was seen.
    assert cables.arrive(ACCOMPLICE, held[EVIL]) == []
    assert cables.arrive(EVIL, held[ACCOMPLICE]) == []
    assert cables.discovery.counters.lldp_at_host == 2
    assert relay(cables, {EVIL: ACCOMPLICE, ACCOMPLICE: EVIL}) == []


def test_a_port_where_a_declared_host_was_seen_never_becomes_a_link(cables: Cables) -> None:
    (host,) = [host for host in NETWORK.hosts if (host.switch, host.port) == HOSTS[1]]
    cables.discovery.declare_parts([type(host)(host.id, host.switch, host.port, mac=MAC)])
    assert cables.arrive(EVIL, advertisement()) == []
    assert relay(cables, {EVIL: ACCOMPLICE, ACCOMPLICE: EVIL}) == []


@pytest.mark.parametrize("closed", [False, True])
def test_declared_ports_never_become_links(cables: Cables, closed: bool) -> None:
    if closed:
        cables.discovery.declare_parts((), NETWORK.links, closed=True)
    else:
        cables.discovery.declare(NETWORK)
    assert relay(cables, {EVIL: ACCOMPLICE, ACCOMPLICE: EVIL}) == []
    assert EVIL not in cables.heard
    # Nor with a probe from before the declaration.
    assert cables.arrive(ACCOMPLICE, build_probe(KEY, *EVIL, 1)) == []


def test_a_link_keeps_its_peer_whoever_shows_its_probes(
    cables: Cables, caplog: pytest.LogCaptureFixture
) -> None:
    (link,) = [link for link in NETWORK.links if EVIL[0] not in (link.a, link.b)][:1]
    cables.taps = {link.ends[0]: EVIL}
    with caplog.at_level(logging.WARNING):
        assert cables.rounds(10) == []
    assert cables.discovery.counters.lldp_conflict >= 9
    assert len(warnings_of(caplog, prober.__name__)) == 1
    assert "check the cables" in caplog.text
    assert link in cables.discovery.links()


def test_nobody_can_fill_the_log(cables: Cables, caplog: pytest.LogCaptureFixture) -> None:
    cables.taps = {end: EVIL for link in NETWORK.links for end in link.ends}
    cables.arrive(EVIL, advertisement())
    with caplog.at_level(logging.WARNING):
        cables.rounds(20)
    assert cables.discovery.counters.lldp_at_host > 100
    assert len(warnings_of(caplog, prober.__name__)) <= MAX_WARNINGS


def test_a_flood_from_one_port_is_dropped_and_harms_no_link(cables: Cables) -> None:
    forged = build_probe(bytes(32), *ACCOMPLICE, 7)
    seen = 0
    for _ in range(50):
        for _ in range(2_000):
            cables.discovery.packet_in(*EVIL, forged, cables.now)
        seen += 2_000
        assert cables.run(0.5) == []
    counters = cables.discovery.counters
    assert counters.lldp_forged <= 40 + 20 * 0.5 * 50
    assert counters.lldp_forged + counters.over_port_rate == seen


def test_floods_from_all_host_ports_together_are_bounded_and_harm_no_link() -> None:
    cables = Cables(NETWORK, DiscoveryLimits(total_rate=5, total_burst=10))
    cables.connect()
    cables.rounds()
    frame = advertisement()
    for _ in range(60):
        for end in HOSTS:
            for _ in range(30):
                cables.discovery.packet_in(*end, frame, cables.now)
        assert cables.run(0.5) == []
    counters = cables.discovery.counters
    assert counters.over_total_rate > 0
    assert len(cables.discovery.links()) == 4
    assert len(cables.discovery.hosts()) == 1


def test_neighbour_discovery_from_behind_a_switch_uses_up_nothing(cables: Cables) -> None:
    end, frame = NETWORK.links[0].ends[0], advertisement()
    for _ in range(40):
        for _ in range(500):
            cables.discovery.packet_in(*end, frame, cables.now)
        assert cables.run(0.5) == []
    assert cables.discovery.counters.neighbour_at_link == 40 * 500
    assert cables.discovery.hosts() == ()


def test_packets_from_ports_that_are_not_there_leave_no_trace(cables: Cables) -> None:
    frame = advertisement()
    for port in range(1000):
        assert cables.arrive(("s99", port), frame) == []
        assert cables.arrive(("s1", 1000 + port), frame) == []
    cables.port(EVIL, up=False)
    assert cables.arrive(EVIL, frame) == []
    cables.discovery.switch_down(ACCOMPLICE[0])
    assert cables.arrive(ACCOMPLICE, frame) == []
    assert cables.discovery.counters.unknown_port == 2002
    assert cables.discovery.hosts() == ()


def mutated(random: Random, data: bytes) -> bytes:
    """A frame with a few bytes changed, cut out, put in or repeated."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0 | 1 if at < len(changed):
                changed[at] = random.choice((0, 1, 127, 255, random.randrange(256)))
            case 2:
                changed[at : at + 2] = random.randbytes(2)
            case 3:
                del changed[at : at + random.randrange(1, 20)]
            case 4:
                changed[at:at] = random.randbytes(random.randrange(1, 20))
            case _:
                changed[at:at] = changed[: random.randrange(40)]
    return bytes(changed)


def noise(random: Random) -> bytes:
    head = random.randbytes(12) + random.choice((b"\x88\xcc", b"\x86\xdd", b"\x08\x00"))
    body = random.randbytes(random.randrange(300))
    return (head + body)[: random.randrange(320)]


def test_garbage_is_survived_and_nothing_is_learned_from_it() -> None:
    random = Random(7)
    cables = Cables(NETWORK, ENDLESS)
    cables.connect()
    cables.rounds()
    links = cables.discovery.links()
    # No frame that says a MAC only once: another MAC there is another host, not a broken frame.
    hosts = [advertisement(), solicitation()]
    said = {(MAC, ADDRESS)}
    for number in range(CASES):
        if number % 1000 == 0:
            cables.rounds(1)
        probe = cables.heard[random.choice(HOSTS)][-1]
        source = random.choice((noise(random), probe, *hosts))
        frame = mutated(random, source)
        if frame.startswith(probe):  # whole, with something behind it
            continue
        events = cables.discovery.packet_in(*random.choice(HOSTS), frame, cables.now)
        assert links_of(events) == []
        if {(host.mac, host.ipv6) for host in hosts_of(events)} - said:
            # Two words more or less that are all zeros or all ones: the checksum cannot tell.
            assert frame == with_checksum(frame)
        if cables.discovery.hosts():
            for end in HOSTS:  # so that all ports are probed, and can be attacked, again
                cables.port(end, up=False)
                cables.port(end, up=True)
            cables.run(1)
    assert cables.discovery.links() == links
    counters = cables.discovery.counters
    assert counters.lldp_forged > CASES // 25
    assert counters.lldp_foreign > CASES // 10
    assert counters.neighbour_malformed > CASES // 5


def test_garbage_that_checks_an_address_tells_no_other_address() -> None:
    random = Random(8)
    cables = Cables(NETWORK, ENDLESS)
    cables.connect()
    frame = address_check()
    for _ in range(20_000):
        cables.discovery.packet_in(*EVIL, mutated(random, frame), cables.now)
    assert {host.ipv6 for host in cables.discovery.hosts()} <= {ADDRESS}
