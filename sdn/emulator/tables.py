"""Flow tables and groups of a switch, changed as OpenFlow says: messages in, changes out."""

from collections.abc import Callable, Iterable, Iterator

from dzflow.address import ALL
from dzflow.region import is_prefix
from sdn.emulator.actions import (
    ALL_PORTS,
    FLOOD,
    IN_PORT,
    Steps,
    parse_buckets,
    parse_instructions,
)
from sdn.emulator.matching import Fields, holds
from sdn.emulator.model import SwitchModel
from sdn.emulator.refused import (
    BAD_COMMAND,
    BAD_FLAGS,
    BAD_GOTO,
    BAD_GROUP_COMMAND,
    BAD_GROUP_TYPE,
    BAD_MASK,
    BAD_OUT_GROUP,
    BAD_OUT_PORT,
    BAD_TABLE,
    BAD_TIMEOUT,
    BUFFER_UNKNOWN,
    GROUP_EXISTS,
    INVALID_GROUP,
    NO_CHAINING,
    OUT_OF_GROUPS,
    TABLE_FULL,
    UNKNOWN_GROUP,
    Refused,
)
from sdn.emulator.rules import (
    Changed,
    ForeignKey,
    Group,
    Rule,
    Selection,
    fields_of,
    key_of,
    selection_of,
    split_flow_mod,
)
from sdn.openflow.protocol.codec import decode_group_mod
from sdn.openflow.protocol.constants import (
    ALL_TABLES,
    ANY,
    CONTROLLER_PORT,
    GROUP_ALL,
    MAX_PORT,
    FlowCommand,
    GroupCommand,
)
from sdn.openflow.protocol.layouts import GROUP_MOD
from sdn.openflow.protocol.messages import FlowMod
from sdn.tables.flow_table import FlowTable
from sdn.tables.flows import FlowEntry, FlowKey, Output, ToGroup

# Plain numbers: members of an enum are slow to get.
_ADD, _MODIFY, _MODIFY_STRICT = (
    int(FlowCommand.ADD),
    int(FlowCommand.MODIFY),
    int(FlowCommand.MODIFY_STRICT),
)
_DELETE, _DELETE_STRICT = int(FlowCommand.DELETE), int(FlowCommand.DELETE_STRICT)

_RESET_COUNTS = 1 << 2
_RESERVED = frozenset({IN_PORT, FLOOD, ALL_PORTS, CONTROLLER_PORT})
_ALL_GROUPS = 0xFFFFFFFC


class Tables:
    """All entries and groups of a switch; raises Refused, without a change, for bad messages."""

    def __init__(self, model: SwitchModel) -> None:
        self.model = model
        self.groups: dict[int, Group] = {}
        self._known = FlowTable[Rule]()
        # Entries whose match is not of the form that we write: few, so they are scanned.
        self._foreign: dict[ForeignKey, Rule] = {}
        self._foreign_of: dict[int, list[tuple[Fields, Rule]]] = {}

    def __len__(self) -> int:
        return len(self._known.entries) + len(self._foreign)

    def __iter__(self) -> Iterator[Rule]:
        yield from self._known.entries.values()
        yield from self._foreign.values()

    def clear(self) -> None:
        """Forget all entries and groups."""
        self.groups.clear()
        self._known.clear()
        self._foreign.clear()
        self._foreign_of.clear()

    def selected(self, selection: Selection) -> list[Rule]:
        """The entries that a request asks for."""
        return [rule for rule in self if selection.holds(rule)]

    def best(
        self, table: int, address: int | None, in_port: int, packet: Callable[[], dict[int, int]]
    ) -> Rule | None:
        """The entry that a packet meets in a table; `packet` gives all its fields if need be."""
        known = self._known.matching(table, address, in_port)
        best = known[0] if known else None
        for fields, rule in self._foreign_of.get(table, ()):  # the highest priority first
            if best is not None and rule.priority <= best.priority:
                break
            if holds(fields, packet()):
                return rule
        return best

    # Flow-mods.

    def apply(self, mod: FlowMod, message: bytes) -> list[Changed]:
        """Carry out a flow-mod, which is also given as it came."""
        command = mod.command
        if command == _ADD:
            return self._add(mod, message)
        if command == _DELETE_STRICT:
            return self._removed(self._exactly(mod))
        if command == _DELETE:
            return self._removed(self._within(mod))
        if command == _MODIFY_STRICT:
            return self._modified(self._exactly(mod), mod, message)
        if command == _MODIFY:
            return self._modified(self._within(mod), mod, message)
        raise Refused(BAD_COMMAND)

    def _add(self, mod: FlowMod, message: bytes) -> list[Changed]:
        key, steps, goto = self._checked(mod, message)
        before = self.find(key)
        if before is None and self._size(key[0]) >= self.model.table_capacity:
            raise Refused(TABLE_FULL)
        match, instructions = split_flow_mod(message)
        rule = Rule(key, mod.cookie, match, instructions, steps, goto)
        if before is not None and not mod.flags & _RESET_COUNTS:
            rule.packets, rule.octets = before.packets, before.octets
        self._put(rule)
        return [Changed(before, rule)]

    def _modified(self, rules: Iterable[Rule], mod: FlowMod, message: bytes) -> list[Changed]:
        _, steps, goto = self._checked(mod, message)
        rules = list(rules)
        if goto is not None and any(goto <= rule.table for rule in rules):
            raise Refused(BAD_GOTO)
        _, instructions = split_flow_mod(message)
        changes = []
        for before in rules:
            after = Rule(before.key, before.cookie, before.match, instructions, steps, goto)
            if not mod.flags & _RESET_COUNTS:
                after.packets, after.octets = before.packets, before.octets
            self._put(after)
            changes.append(Changed(before, after))
        return changes

    def _removed(self, rules: Iterable[Rule]) -> list[Changed]:
        changes = []
        for rule in list(rules):
            self._remove(rule)
            changes.append(Changed(rule, None))
        return changes

    def _checked(
        self, mod: FlowMod, message: bytes
    ) -> tuple[FlowKey | ForeignKey, Steps, int | None]:
        """Key and instructions of a flow-mod that sets them, if the switch can do that."""
        entry = mod.entry
        key = key_of(entry)
        if entry.table >= self.model.tables:
            raise Refused(BAD_TABLE)
        if message[26:30] != b"\0\0\0\0":
            raise Refused(BAD_TIMEOUT)
        if message[32:36] != b"\xff\xff\xff\xff":
            raise Refused(BUFFER_UNKNOWN)
        if mod.flags & ~_RESET_COUNTS:
            raise Refused(BAD_FLAGS)
        if self.model.masks != "any":
            self._check_mask(key)
        if isinstance(entry, FlowEntry):
            steps: Steps = entry.actions
            goto = entry.goto
        else:
            steps, goto = parse_instructions(entry.instructions)
        if goto is not None and not entry.table < goto < self.model.tables:
            raise Refused(BAD_GOTO)
        self.check_steps(steps)
        return key, steps, goto

    def check_steps(self, steps: Steps) -> None:
        """Raise Refused if something is sent to where nothing can be sent."""
        for step in steps:
            if isinstance(step, Output):
                if not 0 < step.port <= MAX_PORT and step.port not in _RESERVED:
                    raise Refused(BAD_OUT_PORT)
            elif isinstance(step, ToGroup) and step.group not in self.groups:
                raise Refused(BAD_OUT_GROUP)

    def _check_mask(self, key: FlowKey | ForeignKey) -> None:
        match = key.match if isinstance(key, FlowKey) else None
        if match is not None and match.mask:
            full = match.mask == ALL
            if not full and (self.model.masks == "none" or not is_prefix(match.mask, ALL)):
                raise Refused(BAD_MASK)

    def _exactly(self, mod: FlowMod) -> list[Rule]:
        """The entries that a strict command names: at most one in each table."""
        key = key_of(mod.entry)
        table = key[0]
        if table == ALL_TABLES and mod.command == _DELETE_STRICT:
            found = [rule for rule in self if rule.key[1:] == key[1:]]
        else:
            if table >= self.model.tables:
                raise Refused(BAD_TABLE)
            rule = self.find(key)
            found = [] if rule is None else [rule]
        # By far the most frequent case, so it is decided without a selection.
        if mod.out_port == ANY and mod.out_group == ANY:
            mask = mod.cookie_mask
            return [rule for rule in found if not (rule.cookie ^ mod.cookie) & mask]
        selection = selection_of(mod, {})
        return [rule for rule in found if selection.holds(rule)]

    def _within(self, mod: FlowMod) -> list[Rule]:
        """The entries that a command names which is not strict."""
        entry = mod.entry
        deletes = mod.command == _DELETE
        if entry.table >= self.model.tables and not (deletes and entry.table == ALL_TABLES):
            raise Refused(BAD_TABLE)
        return self.selected(selection_of(mod, fields_of(key_of(entry))))

    # Groups.

    def apply_group(self, message: bytes) -> list[Changed]:
        """Carry out a group-mod; entries that lead to a deleted group go with it."""
        mod = decode_group_mod(message)
        if mod.command == GroupCommand.DELETE:
            return self._delete_group(mod.group)
        if mod.command not in (GroupCommand.ADD, GroupCommand.MODIFY):
            raise Refused(BAD_GROUP_COMMAND)
        if mod.group > MAX_PORT:
            raise Refused(INVALID_GROUP)
        *_, kind, _ = GROUP_MOD.unpack_from(message)
        if kind != GROUP_ALL:
            raise Refused(BAD_GROUP_TYPE)
        adds = mod.command == GroupCommand.ADD
        if adds == (mod.group in self.groups):
            raise Refused(GROUP_EXISTS if adds else UNKNOWN_GROUP)
        if adds and len(self.groups) >= self.model.max_groups:
            raise Refused(OUT_OF_GROUPS)
        data = message[GROUP_MOD.size :]
        buckets = parse_buckets(data)
        for steps in buckets:
            if any(isinstance(step, ToGroup) for step in steps):
                raise Refused(NO_CHAINING)
            self.check_steps(steps)
        self.groups[mod.group] = Group(mod.group, buckets, data)
        return []

    def _delete_group(self, number: int) -> list[Changed]:
        gone = set(self.groups) if number == _ALL_GROUPS else {number} & set(self.groups)
        for group in gone:
            del self.groups[group]
        leads = (
            rule
            for rule in self
            if any(isinstance(step, ToGroup) and step.group in gone for step in rule.steps)
        )
        return self._removed(leads) if gone else []

    # Storage.

    def find(self, key: FlowKey | ForeignKey) -> Rule | None:
        """The entry with this key."""
        if isinstance(key, FlowKey):
            return self._known.entries.get(key)
        return self._foreign.get(key)

    def _size(self, table: int) -> int:
        return self._known.size(table) + len(self._foreign_of.get(table, ()))

    def _put(self, rule: Rule) -> None:
        key = rule.key
        if isinstance(key, FlowKey):
            self._known.put(key, rule)
            return
        if key in self._foreign:
            self._remove(self._foreign[key])
        self._foreign[key] = rule
        rules = self._foreign_of.setdefault(rule.table, [])
        rules.append((rule.fields, rule))
        rules.sort(key=lambda pair: -pair[1].priority)

    def _remove(self, rule: Rule) -> None:
        key = rule.key
        if isinstance(key, FlowKey):
            self._known.remove(key)
            return
        del self._foreign[key]
        rules = self._foreign_of[rule.table]
        rules[:] = [pair for pair in rules if pair[1].key != key]
