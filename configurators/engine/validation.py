"""Checks a CP-config against its definition: slow and plain, for tests and for diagnosis."""

from configurators.engine.engine import Engine
from dzflow.errors import DzflowError
from sdn.tables.flows import FlowEntry
from sdn.tables.plans import tables


class Invalid(DzflowError):
    """A CP-config that does not follow from its active requests: a bug."""


def validate(engine: Engine) -> None:
    """Raise Invalid unless the CP-config is a function of the active requests, and lean.

    I1 and I2: a new engine, given the active requests in another order, has the same contributions,
    and the definition of the plan gives the same entries. I5: no entry could be left out.
    """
    again = Engine(engine.plan)
    again.load(reversed(engine.active()))
    if again.counts() != engine.counts():
        raise Invalid("counts differ from those of the active requests")
    contributions = engine.contributions()
    if again.contributions() != contributions:
        raise Invalid("contributions differ from a rebuild in another order (I1, I2)")
    entries = {switch: set(found) for switch, found in engine.entries().items()}
    defined = tables(engine.plan, {region: own for region, (own, _) in contributions.items()})
    if entries != defined:
        raise Invalid("entries differ from the plan's definition (I2)")
    for switch, found in entries.items():
        _check_lean(switch, found)


def _check_lean(switch: str, entries: set[FlowEntry]) -> None:
    for entry in entries:
        nearest = max(
            (other for other in entries if other is not entry and _covers(other, entry)),
            key=lambda other: other.priority,
            default=None,
        )
        if nearest and (nearest.actions, nearest.goto) == (entry.actions, entry.goto):
            raise Invalid(f"{switch}: {entry} adds nothing to {nearest} (I5)")


def _covers(coarse: FlowEntry, fine: FlowEntry) -> bool:
    a, b = coarse.match, fine.match
    same_place = (coarse.table, coarse.in_port) == (fine.table, fine.in_port)
    return bool(
        same_place and a and b and a.mask & b.mask == a.mask and b.address & a.mask == a.address
    )
