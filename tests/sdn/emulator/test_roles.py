"""Several controllers of one switch: master, slaves, generations."""

import pytest

from sdn.openflow.protocol.constants import V1_3, V1_4, Role
from sdn.openflow.protocol.events import PacketIn, PortChanged, RoleChanged, RoleReply, SwitchError
from tests.sdn.emulator.support import Wired, add, entry, set_async

NEWEST = 0xFFFFFFFFFFFFFFFF


def ask(wired: Wired, role: Role, generation: int) -> RoleReply | SwitchError:
    xid = wired.session.request_role(role, generation)
    (answer,) = wired.pump()
    assert isinstance(answer, RoleReply | SwitchError)
    assert answer.xid == xid
    return answer


def second(first: Wired, version: int = V1_4) -> Wired:
    return Wired(switch=first.switch, version=version)


def test_all_controllers_are_equal_at_first() -> None:
    first = Wired()
    other = second(first)
    for each, wanted in ((first, entry(0)), (other, entry(1))):
        assert each.apply(add(wanted)) == []
    assert first.entries() == {entry(0), entry(1)}


def test_a_new_master_makes_the_old_one_a_slave_and_tells_it() -> None:
    first = Wired()
    other = second(first)
    assert ask(first, Role.MASTER, 5) == RoleReply(4, Role.MASTER, 5)
    answer = ask(other, Role.MASTER, 6)
    assert isinstance(answer, RoleReply)
    assert first.pump() == [RoleChanged(Role.SLAVE, 6)]
    (error,) = first.apply(add(entry()))
    assert error.is_slave
    assert other.apply(add(entry())) == []


def test_in_openflow_1_3_nobody_tells_the_old_master() -> None:
    first = Wired(version=V1_3)
    ask(first, Role.MASTER, 5)
    ask(second(first, V1_3), Role.MASTER, 6)
    assert first.pump() == []
    (error,) = first.apply(add(entry()))
    assert error.is_slave


@pytest.mark.parametrize("role", [Role.MASTER, Role.SLAVE])
def test_an_older_generation_is_refused_and_changes_nothing(role: Role) -> None:
    first = Wired()
    other = second(first)
    ask(other, Role.MASTER, 6)
    stale = ask(first, role, 5)
    assert isinstance(stale, SwitchError)
    assert stale.stale_generation
    assert other.apply(add(entry())) == []
    same = ask(first, role, 6)
    assert isinstance(same, RoleReply)


def test_generations_go_round() -> None:
    wired = Wired()
    ask(wired, Role.MASTER, NEWEST)
    after = ask(wired, Role.MASTER, 3)
    assert isinstance(after, RoleReply)
    before = ask(wired, Role.MASTER, NEWEST)
    assert isinstance(before, SwitchError)


def test_equals_need_no_generation_and_the_role_can_just_be_asked_for() -> None:
    wired = Wired()
    ask(wired, Role.MASTER, 6)
    for role, expected in ((Role.NO_CHANGE, Role.MASTER), (Role.EQUAL, Role.EQUAL)):
        answer = ask(wired, role, 0)
        assert isinstance(answer, RoleReply)
        assert (answer.role, answer.generation) == (expected, 6)


def test_the_generation_outlives_the_connection_but_not_the_switch() -> None:
    first = Wired()
    ask(first, Role.MASTER, 9)
    first.switch.disconnect(first.connection)
    again = second(first)
    assert isinstance(ask(again, Role.MASTER, 8), SwitchError)
    again.switch.restart()
    fresh = second(first)
    assert isinstance(ask(fresh, Role.MASTER, 8), RoleReply)


def test_a_slave_hears_of_ports_but_gets_no_packets() -> None:
    first = Wired()
    other = second(first)
    ask(first, Role.SLAVE, 1)
    first.switch.send_packet_ins(b"x" * 60, 1)
    first.switch.set_port(2, up=False)
    assert [type(event) for event in first.pump()] == [PortChanged]
    assert [type(event) for event in other.pump()] == [PacketIn, PortChanged]


@pytest.mark.parametrize("version", [V1_3, V1_4])
def test_packet_ins_can_be_turned_off_and_on(version: int) -> None:
    wired = Wired(version=version)
    for wanted in (False, True):
        wired.send(set_async(version, packet_ins=wanted))
        wired.switch.send_packet_ins(b"x" * 60, 1)
        wired.switch.set_port(2, up=wanted)
        told = [type(event) for event in wired.pump()]
        assert told == ([PacketIn, PortChanged] if wanted else [PortChanged])
