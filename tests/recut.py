"""Goes over from one partition map to another at once: new engines, and the operations for it."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from configurators.engine.engine import DecisionPending, Engine
from configurators.engine.partials import Request
from configurators.engine.partition_map import PartitionMap, route
from sdn.tables.flows import Batch, FlowEntry, difference
from sdn.tables.plans import Plan


class Recut(Struct, frozen=True):
    """The engines of the new map, and the operations that lead there.

    Entries that lose their coverer are added before entries that gain one are deleted, so no needed
    entry is ever missing. The old engines stay unchanged, in case the operations fail.
    """

    engines: dict[str, Engine]
    batch: Batch


def recut(
    plan: Plan,
    engines: Mapping[str, Engine],
    requests: Iterable[Request],
    new_map: PartitionMap,
) -> Recut:
    """Decide how to go over to another map. Partitions in both maps keep their engines."""
    for name, engine in engines.items():
        if engine.pending:
            raise DecisionPending(f"partition {name}: commit or discard its decision first")
    kept = {name: engines[name] for name in new_map.leaves() if name in engines}
    made = {name: Engine(plan) for name in new_map.leaves() if name not in kept}
    partials = [route(new_map, request) for request in requests]
    for name, engine in made.items():
        engine.load(parts[name] for parts in partials if name in parts)
    gone = (engine for name, engine in engines.items() if name not in kept)
    return Recut(kept | made, difference(_entries(gone), _entries(made.values())))


def _entries(engines: Iterable[Engine]) -> dict[str, list[FlowEntry]]:
    found: dict[str, list[FlowEntry]] = {}
    for engine in engines:
        for switch, entries in engine.entries().items():
            found.setdefault(switch, []).extend(entries)
    return found
