"""Switches that are slow, lie or fail, by a clock that the tests turn."""

import pytest

from sdn.emulator.model import HARDWARE, PRESETS, SwitchModel
from sdn.emulator.refused import TABLE_FULL
from sdn.emulator.switch import MAX_WORK
from sdn.openflow.protocol.constants import OUR_COOKIES, FlowCommand
from sdn.openflow.protocol.events import BarrierReply, EchoReply, Event, FlowStats, SwitchError
from sdn.openflow.protocol.messages import FlowMod
from sdn.tables.flows import Change, FlowOp
from tests.sdn.emulator.support import Wired, add, delete, entry, group

ENTRIES = [entry(n) for n in range(10)]


def at(wired: Wired, time: float) -> list[Event]:
    wired.now = time
    return wired.pump()


def held(wired: Wired) -> set[object]:
    return set(wired.switch.entries())


def test_a_slow_switch_takes_its_time_for_each_flow_mod() -> None:
    wired = Wired(SwitchModel(flow_mod_seconds=2.0))
    sent = wired.session.send_ops(add(*ENTRIES[:3]))
    assert wired.pump() == []
    assert held(wired) == set()
    for number in range(3):
        assert wired.switch.wake_at == 2.0 * (number + 1)
        assert held(wired) == set(ENTRIES[:number])
        events = at(wired, 2.0 * (number + 1))
    assert held(wired) == set(ENTRIES[:3])
    assert events == [BarrierReply(sent.barrier_xid)]
    assert wired.switch.wake_at is None


def test_time_that_nothing_was_to_be_done_is_not_saved_up() -> None:
    wired = Wired(SwitchModel(flow_mod_seconds=2.0))
    wired.now = 100.0
    wired.session.send_ops(add(ENTRIES[0]))
    wired.pump()
    assert wired.switch.wake_at == 102.0


def test_a_rate_lets_a_burst_through_and_then_one_after_another() -> None:
    wired = Wired(SwitchModel(rate=10.0, burst=4))
    wired.session.send_ops(add(*ENTRIES))
    wired.pump()
    counts = [(0.0, len(held(wired)))]
    while (wake_at := wired.switch.wake_at) is not None:
        at(wired, wake_at)
        counts.append((round(wake_at, 3), len(held(wired))))
    assert counts[0] == (0.0, 4)
    assert counts[-1] == (0.6, 10)
    assert [count for _, count in counts] == [4, 5, 6, 7, 8, 9, 10]


def test_the_hardware_preset_does_45_flow_mods_a_second() -> None:
    assert PRESETS["hardware"] is HARDWARE
    wired = Wired(HARDWARE)
    wired.session.send_ops(add(*(entry(n, 16) for n in range(100))))
    wired.pump()
    counts = []
    for second in range(3):
        at(wired, second + 0.001)
        counts.append(len(held(wired)))
    assert counts == [1, 46, 91]


def test_a_slow_switch_still_shows_that_it_is_alive() -> None:
    wired = Wired(SwitchModel(flow_mod_seconds=2.0))
    wired.session.send_ops(add(*ENTRIES))
    wired.session.request_flow_stats()
    wired.session.request_echo()
    assert [type(event) for event in wired.pump()] == [EchoReply]
    assert [type(event) for event in at(wired, 20.0)] == [BarrierReply, FlowStats]


def test_deletions_and_groups_keep_their_place_behind_slow_flow_mods() -> None:
    wired = Wired(SwitchModel(flow_mod_seconds=1.0))
    wired.session.send_ops(add(entry()))
    wired.session.send_group_ops([group(7, 1)])
    wired.session.send_ops(delete(entry()))
    wired.pump()
    assert not wired.switch.tables.groups
    at(wired, 1.0)
    assert held(wired) == {entry()}
    assert set(wired.switch.tables.groups) == {7}
    at(wired, 2.0)
    assert held(wired) == set()


def test_late_acknowledgements_are_late_and_nothing_else() -> None:
    wired = Wired(SwitchModel(acknowledge_after=0.005))
    first = wired.session.send_ops(add(ENTRIES[0]))
    assert wired.pump() == []
    assert held(wired) == {ENTRIES[0]}
    at(wired, 0.003)
    second = wired.session.send_ops(add(ENTRIES[1]))
    assert wired.pump() == []
    assert at(wired, 0.005) == [BarrierReply(first.barrier_xid)]
    assert at(wired, 0.008) == [BarrierReply(second.barrier_xid)]


def test_acknowledgements_can_be_delayed_on_command() -> None:
    wired = Wired()
    wired.switch.delay(2.0)
    sent = wired.session.send_ops(add(entry()))
    assert wired.pump() == []
    assert at(wired, 2.0) == [BarrierReply(sent.barrier_xid)]
    wired.switch.delay(0.0)
    assert wired.apply(delete(entry())) == []


def test_what_a_switch_is_can_change_on_the_way() -> None:
    wired = Wired()
    wired.apply(add(ENTRIES[0]))
    wired.switch.model = SwitchModel(table_capacity=1, flow_mod_seconds=1.0)
    wired.session.send_ops(add(ENTRIES[1]))
    wired.pump()
    assert isinstance(at(wired, 1.0)[0], SwitchError)


def test_too_much_work_is_noticed() -> None:
    wired = Wired(SwitchModel(flow_mod_seconds=1.0))
    wired.session.send_ops(add(*(entry(n, 20) for n in range(MAX_WORK + 1))))
    wired.pump()
    assert wired.switch.busy
    at(wired, 2.0)
    assert not wired.switch.busy


def test_barriers_that_are_ignored_are_never_answered() -> None:
    wired = Wired()
    wired.switch.ignore_barriers()
    wired.session.send_ops(add(entry()))
    assert wired.pump() == []
    assert held(wired) == {entry()}
    wired.switch.behave()
    assert at(wired, 100.0) == []
    assert wired.apply(add(ENTRIES[1])) == []


def test_a_lying_switch_acknowledges_what_it_has_not_done() -> None:
    wired = Wired()
    wired.switch.lie(hold=3.0)
    assert wired.apply(add(entry())) == []
    # It does not show what it has not done.
    assert wired.entries() == set()
    assert wired.switch.wake_at == 3.0
    at(wired, 3.0)
    assert wired.entries() == {entry()}


def test_a_lying_switch_may_do_it_only_when_it_is_told_to_behave() -> None:
    wired = Wired()
    wired.switch.lie()
    assert wired.apply_groups(group(7, 1)) == []
    assert wired.apply(add(*ENTRIES)) == []
    assert wired.switch.wake_at is None
    at(wired, 1e9)
    assert held(wired) == set()
    wired.switch.behave()
    wired.session.send_ops(delete(ENTRIES[0]))
    wired.pump()
    assert held(wired) == set(ENTRIES[1:])
    assert set(wired.switch.tables.groups) == {7}


def test_a_switch_behaves_again_after_a_lie_and_another_fault() -> None:
    wired = Wired()
    wired.switch.lie()
    assert wired.apply(add(*ENTRIES)) == []
    wired.switch.ignore_barriers()
    wired.switch.behave()
    wired.session.send_ops(delete(ENTRIES[0]))
    wired.pump()
    assert held(wired) == set(ENTRIES[1:])


def test_what_a_lying_switch_holds_back_is_lost_when_it_restarts() -> None:
    wired = Wired()
    wired.apply(add(ENTRIES[0]))
    wired.switch.lie()
    wired.apply(add(ENTRIES[1]))
    wired.switch.restart(keep_tables=True)
    wired.switch.behave()
    again = Wired(switch=wired.switch)
    assert again.entries() == {ENTRIES[0]}


def test_errors_of_a_lying_switch_come_after_its_acknowledgement() -> None:
    wired = Wired(SwitchModel(table_capacity=0))
    wired.switch.lie(hold=1.0)
    assert wired.apply(add(entry())) == []
    (error,) = at(wired, 1.0)
    assert isinstance(error, SwitchError)
    assert error.table_full


@pytest.mark.parametrize("keep", [False, True])
def test_a_restart_loses_connections_and_tables_unless_they_are_kept(keep: bool) -> None:
    wired = Wired()
    wired.apply_groups(group(7, 1))
    wired.apply(add(*ENTRIES))
    wired.switch.restart(keep_tables=keep)
    assert wired.connection.closed
    assert wired.switch.connections == ()
    again = Wired(switch=wired.switch)
    assert again.entries() == (set(ENTRIES) if keep else set())
    assert set(wired.switch.tables.groups) == ({7} if keep else set())


def test_a_restart_loses_unfinished_work() -> None:
    wired = Wired(SwitchModel(flow_mod_seconds=1.0, acknowledge_after=1.0))
    wired.session.send_ops(add(*ENTRIES))
    wired.pump()
    at(wired, 2.0)
    wired.switch.restart(keep_tables=True)
    assert wired.switch.wake_at is None
    at(wired, 100.0)
    assert held(wired) == set(ENTRIES[:2])


def test_work_of_a_lost_connection_is_still_done() -> None:
    wired = Wired(SwitchModel(flow_mod_seconds=1.0))
    wired.session.send_ops(add(*ENTRIES[:2]))
    wired.pump()
    wired.switch.disconnect(wired.connection)
    wired.switch.tick(2.0)
    assert held(wired) == set(ENTRIES[:2])


def test_the_nth_flow_mod_is_refused() -> None:
    wired = Wired()
    wired.switch.refuse(skip=2, error=TABLE_FULL)
    sent = wired.session.send_ops(add(*ENTRIES[:5]))
    (error, _) = wired.pump()
    assert isinstance(error, SwitchError)
    assert error.table_full
    assert error.xid == sent.first_xid + 2
    assert held(wired) == {ENTRIES[n] for n in (0, 1, 3, 4)}


def test_flow_mods_of_a_kind_are_refused_until_the_switch_is_told_to_behave() -> None:
    def deletes(mod: FlowMod) -> bool:
        return mod.command == FlowCommand.DELETE_STRICT

    wired = Wired()
    wired.apply(add(*ENTRIES))
    wired.switch.refuse(deletes, times=None)
    assert len(wired.apply(delete(*ENTRIES[:3]) + add(entry(0, 2)))) == 3
    assert held(wired) == {*ENTRIES, entry(0, 2)}
    wired.switch.behave()
    assert wired.apply(delete(*ENTRIES)) == []


def test_flow_mods_can_be_lost_without_a_word() -> None:
    wired = Wired()
    wired.switch.lose(skip=1, times=2)
    assert wired.apply(add(*ENTRIES[:5])) == []
    assert held(wired) == {ENTRIES[n] for n in (0, 3, 4)}


def test_another_application_may_change_tables_and_groups() -> None:
    wired = Wired()
    wired.apply(add(*ENTRIES[:2]))
    wired.switch.change(FlowOp(Change.DELETE, ENTRIES[0]))
    wired.switch.change(FlowOp(Change.ADD, ENTRIES[5]), cookie=0x1)
    wired.switch.change_group(group(9, 1))
    assert held(wired) == {ENTRIES[1], ENTRIES[5]}
    assert [stat.entry for stat in wired.stats(OUR_COOKIES, 0xFFFF << 48)] == [ENTRIES[1]]
    assert set(wired.switch.tables.groups) == {9}
