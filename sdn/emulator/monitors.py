"""The flow monitors of one connection (OpenFlow 1.4), which report changes to tables."""

from collections.abc import Iterable
from struct import Struct

from msgspec import Struct as Record

from sdn.emulator import answers
from sdn.emulator.matching import parse_match
from sdn.emulator.refused import (
    BAD_MONITOR_COMMAND,
    BAD_MONITOR_FLAGS,
    BAD_MONITOR_TABLE,
    MONITOR_EXISTS,
    UNKNOWN_MONITOR,
    Refused,
)
from sdn.emulator.rules import Changed, ForeignKey, Rule, Selection
from sdn.emulator.tables import Tables
from sdn.openflow.protocol.constants import ALL_TABLES, FlowEvent
from sdn.openflow.protocol.wire import MULTIPART, read
from sdn.tables.flows import FlowKey

_REQUEST = Struct("!IIIHBB")
_ADD, _MODIFY, _DELETE = 0, 1, 2

# What a monitor asks for.
_INITIAL, _ADDED, _REMOVED, _MODIFIED = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_INSTRUCTIONS, _IN_FULL, _ONLY_OWN = 1 << 4, 1 << 5, 1 << 6
_ALL_FLAGS = (1 << 7) - 1

_WANTED = {
    FlowEvent.ADDED: _ADDED,
    FlowEvent.REMOVED: _REMOVED,
    FlowEvent.MODIFIED: _MODIFIED,
}


class Monitor(Record, frozen=True):
    """Which entries a monitor watches, and what it reports."""

    selection: Selection
    flags: int

    def wants(self, change: Changed, own: bool) -> bool:
        """Whether a change is told."""
        return (
            bool(self.flags & _WANTED[_event(change)])
            and (own or not self.flags & _ONLY_OWN)
            and any(rule is not None and self.selection.holds(rule) for rule in change)
        )


class Monitors:
    """All flow monitors of a connection. While paused, they collect the changes."""

    def __init__(self) -> None:
        self._monitors: dict[int, Monitor] = {}
        self._missed: dict[FlowKey | ForeignKey, Rule | None] | None = None

    def __bool__(self) -> bool:
        return bool(self._monitors)

    def request(self, version: int, xid: int, message: bytes, tables: Tables) -> bytes:
        """Carry out a request for a monitor; the answer to it."""
        number, out_port, out_group, flags, table, command = read(_REQUEST, message, MULTIPART.size)
        fields = parse_match(message[MULTIPART.size + _REQUEST.size :])
        if command not in (_ADD, _MODIFY, _DELETE):
            raise Refused(BAD_MONITOR_COMMAND)
        if (number in self._monitors) == (command == _ADD):
            raise Refused(MONITOR_EXISTS if command == _ADD else UNKNOWN_MONITOR)
        if command == _DELETE:
            del self._monitors[number]
            return answers.updates(version, xid, ())
        if flags & ~_ALL_FLAGS:
            raise Refused(BAD_MONITOR_FLAGS)
        if table >= tables.model.tables and table != ALL_TABLES:
            raise Refused(BAD_MONITOR_TABLE)
        selection = Selection(table, fields, out_port=out_port, out_group=out_group)
        monitor = self._monitors[number] = Monitor(selection, flags)
        found = tables.selected(selection) if monitor.flags & _INITIAL else []
        instructions = bool(flags & _INSTRUCTIONS)
        initial = (answers.update(FlowEvent.INITIAL, rule, instructions) for rule in found)
        return answers.updates(version, xid, initial)

    def changed(self, version: int, changes: Iterable[Changed], own_xid: int | None) -> bytes:
        """The reports of changes; those of this connection's own message have only its xid."""
        told: list[bytes] = []
        abbreviated = False
        for change in changes:
            wanting = [m for m in self._monitors.values() if m.wants(change, own_xid is not None)]
            if not wanting:
                continue
            if self._missed is not None:
                rule = change.before or change.after
                assert rule is not None
                self._missed.setdefault(rule.key, change.before)
            elif own_xid is not None and not any(m.flags & _IN_FULL for m in wanting):
                abbreviated = True
            else:
                told.append(_full(change, wanting))
        if abbreviated and own_xid is not None:
            told.append(answers.short_update(FlowEvent.ABBREV, own_xid))
        return answers.updates(version, 0, told) if told else b""

    def pause(self, version: int) -> bytes:
        """Tell nothing until `resume`: there is no room for it."""
        if not self._monitors or self._missed is not None:
            return b""
        self._missed = {}
        return answers.updates(version, 0, [answers.short_update(FlowEvent.PAUSED)])

    def resume(self, version: int, tables: Tables) -> bytes:
        """All changes since the pause."""
        if self._missed is None:
            return b""
        missed, self._missed = self._missed, None
        told = []
        for key, before in missed.items():
            change = Changed(before, tables.find(key))
            wanting = [m for m in self._monitors.values() if m.wants(change, True)]
            if wanting and _differs(change):
                told.append(_full(change, wanting))
        told.append(answers.short_update(FlowEvent.RESUMED))
        return answers.updates(version, 0, told)


def _event(change: Changed) -> FlowEvent:
    if change.before is None:
        return FlowEvent.ADDED
    return FlowEvent.REMOVED if change.after is None else FlowEvent.MODIFIED


def _differs(change: Changed) -> bool:
    before, after = change
    if before is None or after is None:
        return before is not after
    return (before.cookie, before.instructions) != (after.cookie, after.instructions)


def _full(change: Changed, wanting: list[Monitor]) -> bytes:
    rule = change.after or change.before
    assert rule is not None
    return answers.update(_event(change), rule, any(m.flags & _INSTRUCTIONS for m in wanting))
