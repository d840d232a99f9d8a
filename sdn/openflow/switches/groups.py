"""The groups of a switch: which to add and change, and which are in use. Pure.

A switch refuses an entry that sends to a group that is not there. And when a group is deleted, the
switch deletes the entries that use it, too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sdn.tables.flows import (
    Action,
    Change,
    FlowEntry,
    FlowKey,
    FlowOp,
    GroupEntry,
    GroupOp,
    ToGroup,
)


def group_repairs(wanted: Iterable[GroupEntry], have: Mapping[int, int | None]) -> list[GroupOp]:
    """The operations that add and change groups; `have` has the port of each that is there."""
    repairs = []
    for group in wanted:
        if group.group not in have:
            repairs.append(GroupOp(Change.ADD, group))
        elif have[group.group] != group.port:
            repairs.append(GroupOp(Change.MODIFY, group))
    return repairs


def groups_in_use(entries: Iterable[FlowEntry]) -> set[int]:
    """The groups that entries send to."""
    return {
        action.group for entry in entries for action in entry.actions if isinstance(action, ToGroup)
    }


class Groups(NamedTuple):
    """The numbers that groups for hosts of a switch can have, and those that hosts have now."""

    numbers: range = range(0)
    of_hosts: Collection[int] = frozenset()

    def is_gone(self, action: Action) -> bool:
        """Whether an action sends to the group of a host that is gone."""
        return (
            isinstance(action, ToGroup)
            and action.group in self.numbers
            and action.group not in self.of_hosts
        )

    def are_gone(self, op: FlowOp) -> bool:
        """Whether an operation installs an entry that sends to such a group."""
        return op.change is not Change.DELETE and any(map(self.is_gone, op.entry.actions))


def without_gone_groups(ops: Sequence[FlowOp], groups: Groups) -> Sequence[FlowOp]:
    """The operations, with entries that do not send to groups of hosts that are gone.

    The owner of such an entry does not know yet that the host has gone. A switch would refuse the
    entry, also where the owner brings back what there was before another refusal.
    """
    if not any(map(groups.are_gone, ops)):
        return ops
    return [_without(op, groups) if groups.are_gone(op) else op for op in ops]


def _without(op: FlowOp, groups: Groups) -> FlowOp:
    kept = tuple(action for action in op.entry.actions if not groups.is_gone(action))
    return FlowOp(op.change, replace(op.entry, actions=kept))


def without_missing_groups(
    ops: Iterable[FlowOp], there: Collection[int], found: Iterable[FlowEntry]
) -> list[FlowOp]:
    """The operations, with entries that do not send to groups other than those that are `there`.

    The owner of such an entry does not know yet that the host has gone or moved, and changes the
    entry as soon as it does. `found` are the entries of the switch: what they have is left out.
    """
    have: dict[FlowKey, FlowEntry] | None = None
    left = []
    for op in ops:
        entry = op.entry
        if op.change is Change.DELETE or _all_there(entry, there):
            left.append(op)
            continue
        if have is None:
            have = {each.key: each for each in found}
        kept = (each for each in entry.actions if _is_there(each, there))
        entry = replace(entry, actions=tuple(kept))
        if have.get(entry.key) != entry:
            left.append(FlowOp(op.change, entry))
    return left


def _all_there(entry: FlowEntry, there: Collection[int]) -> bool:
    return all(_is_there(action, there) for action in entry.actions)


def _is_there(action: Action, there: Collection[int]) -> bool:
    return not isinstance(action, ToGroup) or action.group in there
