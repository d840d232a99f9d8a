"""Which ports of a switch are remembered."""

from sdn.openflow.connections.arrivals import Arrival
from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.options import DriverOptions
from sdn.openflow.protocol.constants import V1_3
from sdn.openflow.protocol.events import PortChanged, Ready
from sdn.openflow.protocol.messages import Port
from sdn.openflow.switches.server import MAX_PORTS, SwitchPeer
from sdn.tables.flows import Change
from tests.sdn.openflow.connections.quiet_owner import QuietOwner


def port(number: int) -> Port:
    return Port(number, f"p{number}", "02:00:00:00:00:01", up=True)


def switch_peer() -> SwitchPeer:
    """A switch that has introduced itself with port 1."""
    connection = SwitchConnection(QuietOwner(), DriverOptions(), Arrival("here"))
    peer = SwitchPeer(connection, lambda _: None)
    peer.ready = Ready(1, V1_3, 8, 0, (port(1),))
    return peer


def note(peer: SwitchPeer, change: Change, number: int, declared: bool = False) -> bool:
    return peer.note_port(PortChanged(change, port(number)), declared)


async def test_ports_that_come_and_go_for_weeks_do_not_end_the_connection() -> None:
    peer = switch_peer()
    for number in range(2, 2 * MAX_PORTS):
        assert note(peer, Change.ADD, number)
        assert not note(peer, Change.DELETE, number)
    assert peer.connection.lost is None
    assert peer.ports == {1: True}


async def test_too_many_ports_at_once_end_it() -> None:
    peer = switch_peer()
    for number in range(2, MAX_PORTS + 2):
        note(peer, Change.ADD, number)
    assert peer.connection.lost is None
    note(peer, Change.ADD, MAX_PORTS + 2)
    assert peer.connection.lost == f"more than {MAX_PORTS} ports"


async def test_a_deleted_port_of_the_handshake_or_of_the_topology_is_down() -> None:
    peer = switch_peer()
    note(peer, Change.DELETE, 1)
    note(peer, Change.ADD, 7, declared=True)
    note(peer, Change.DELETE, 7, declared=True)
    assert peer.ports == {1: False, 7: False}


async def test_a_port_that_is_deleted_during_the_handshake_is_down() -> None:
    peer = switch_peer()
    ready, peer.ready = peer.ready, None
    note(peer, Change.DELETE, 1)
    peer.ready = ready
    assert peer.ports == {1: False}
