"""The spaces of a replay: their index, their partition map, and the plan file that changes one."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from api.http.schema.plans import PlanIn
from configurators.engine.partition_map import PartitionMap
from configurators.state.trace_spaces import TraceSpace
from configurators.store.keys import PartitionName
from dzflow.address import Scope
from dzflow.errors import BadInput
from dzflow.filters import STORED_WORK, parse_filter
from dzflow.index import Index
from dzflow.region import Region
from monitor.plans.validation import BadPlan, check_map

_REMEMBERED = 20_000  # filters


class BadPlanFile(BadInput):
    """A file without a plan, or with one that does not fit the traces."""


class ReplaySpace(Struct, frozen=True, dict=True):
    """One space in the version that publishers used."""

    name: str
    scope: Scope
    index: Index
    map: PartitionMap
    map_number: int

    def partition(self, leaf: str) -> str:
        """The global name of a partition."""
        return str(PartitionName(self.scope.space, self.scope.version, leaf))

    def partitions(self) -> list[str]:
        """The global names of all partitions."""
        return [self.partition(leaf) for leaf in self.map.leaves()]


class Indexing:
    """From filters in JSON to regions; recent ones come from a cache."""

    def __init__(self, spaces: Mapping[str, ReplaySpace]) -> None:
        self._spaces = spaces
        self.regions = lru_cache(_REMEMBERED)(self._regions)

    def _regions(self, space: str, written: str) -> tuple[Region, ...] | None:
        """The regions of a filter; None if the schema refuses it."""
        index = self._spaces[space].index
        try:
            return index.regions(
                parse_filter(index.space, msgspec.json.decode(written), STORED_WORK)
            )
        except (BadInput, msgspec.DecodeError, RecursionError):
            return None


def load_spaces(described: Mapping[str, TraceSpace]) -> dict[str, ReplaySpace]:
    """The spaces that the footer of traces describes; BadTraceSpaces if one cannot be used."""
    found = {}
    for name, space in described.items():
        version = space.versions[space.current]
        scope = Scope(space.number, space.current)
        index = version.index(name, space.current)
        found[name] = ReplaySpace(name, scope, index, version.map, version.map_number)
    return found


def read_plan(path: Path) -> PlanIn:
    """The plan in a file, in the form of `POST /partitions/plan`; BadPlanFile if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=PlanIn)
    except OSError as error:
        raise BadPlanFile(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadPlanFile(f"{path} is no plan: {error}") from None


def under_plan(spaces: Mapping[str, ReplaySpace], plan: PlanIn) -> dict[str, ReplaySpace]:
    """The spaces with the map of a plan; BadPlanFile if it does not fit them."""
    space = spaces.get(plan.space)
    if space is None:
        known = ", ".join(sorted(spaces)) or "none"
        raise BadPlanFile(
            f"the plan is for the space {plan.space!r}; the traces describe these: {known}"
        )
    if plan.version != space.scope.version:
        raise BadPlanFile(
            f"the plan is for version {plan.version} of the index of {plan.space!r}, and the traces"
            f" end with version {space.scope.version}; make a new plan"
        )
    wanted = msgspec.convert(msgspec.to_builtins(plan.map), PartitionMap)
    try:
        check_map(wanted, space.map.plan)
    except BadPlan as error:
        raise BadPlanFile(str(error)) from None
    leaves = set(wanted.leaves())
    for leaf in plan.assignment:
        if leaf not in leaves:
            raise BadPlanFile(f"assignment: the map has no partition {leaf[:64]!r}")
    return {**spaces, plan.space: replace(space, map=wanted)}


def planned_owners(
    owners: Mapping[str, str], before: ReplaySpace, after: ReplaySpace, plan: PlanIn
) -> dict[str, str]:
    """The owner of each partition under a plan.

    A partition that the plan does not assign stays where it is; if it is new, it goes to an owner
    of the partitions that are gone, by turns, as in the service.
    """
    there, wanted = set(before.partitions()), after.partitions()
    gone = [name for name in before.partitions() if name not in set(wanted)]
    heirs = list(dict.fromkeys(owners[name] for name in gone if name in owners))
    found = {name: owner for name, owner in owners.items() if name not in gone}
    for place, name in enumerate(name for name in wanted if name not in there):
        if heirs:
            found[name] = heirs[place % len(heirs)]
    return found | {after.partition(leaf): owner for leaf, owner in plan.assignment.items()}
