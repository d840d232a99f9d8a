"""A replay under one partition map for each space: routes what records ask to the partitions."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from bench.replay.model import ConfiguratorFigures, MapFigures, Operations, PartitionFigures
from bench.replay.partition import EntryCount, PartitionReplay, Task
from bench.replay.spaces import ReplaySpace
from configurators.engine.engine import Engine, Ordering
from configurators.engine.partials import Partial, Request
from configurators.engine.partition_map import route
from dzflow.region import Region
from sdn.network.routes import Routes
from sdn.network.topology import Topology
from sdn.network.trees import spanning_tree
from sdn.tables.flows import Change, FlowEntry, count, difference
from sdn.tables.pipeline import Pipeline
from sdn.tables.plans import make_plan
from spark.report.skew import skew_of


class MapReplay:
    """The partitions of all spaces on a network, under one map for each space."""

    def __init__(
        self,
        spaces: Mapping[str, ReplaySpace],
        network: Topology,
        limit: int,
        clock: Callable[[], float],
        ordering: Ordering = "net",
    ) -> None:
        self.spaces = spaces
        self.entries = EntryCount()
        # Routes remember ways: with routes of its own, no map is faster because of another.
        routes = Routes(network, {0: spanning_tree(network)})
        self.partitions: dict[str, dict[str, PartitionReplay]] = {}
        for name, space in spaces.items():
            pipeline = Pipeline(plan=space.map.plan).extended(network)
            plan = make_plan(routes, pipeline, space.scope)
            self.partitions[name] = {
                leaf: PartitionReplay(Engine(plan), limit, ordering, clock, self.entries)
                for leaf in space.map.leaves()
            }

    def begin(self, space: str, record: Request) -> None:
        """A record begins."""
        for leaf, share in route(self.spaces[space].map, record).items():
            self._send(space, leaf, record, share.regions, share.edge)

    def end(self, space: str, record: Request) -> None:
        """A record ends."""
        for leaf in route(self.spaces[space].map, record):
            self._send(space, leaf, record)

    def update(self, space: str, old: Request, new: Request) -> None:
        """A record gets other regions: they are added, and then the old ones are removed.

        A partition gets two tasks at the most, as from the dispatcher.
        """
        partition_map = self.spaces[space].map
        before, after = route(partition_map, old), route(partition_map, new)
        for leaf, share in after.items():
            had = before.get(leaf)
            both = _joined(had, share) if had else share
            if not (had and _same(had, both)):
                self._send(space, leaf, new, both.regions, both.edge)
            if not _same(both, share):
                self._send(space, leaf, new, share.regions, share.edge)
        for leaf in before:
            if leaf not in after:
                self._send(space, leaf, new)

    def finish(self) -> None:
        """Decide everything that waits."""
        for partitions in self.partitions.values():
            for partition in partitions.values():
                partition.finish()

    def figures(self, owners: Mapping[str, str]) -> MapFigures:
        """What was done, with the configurator of each partition by its global name."""
        rows = []
        for name, partitions in self.partitions.items():
            for leaf, partition in partitions.items():
                full = self.spaces[name].partition(leaf)
                rows.append(_figures(full, name, owners.get(full, ""), partition))
        rows.sort(key=lambda row: (-row.work_ms, row.name))
        configurators = _by_configurator(rows) if owners else ()
        skew = skew_of("partitions", (row.work_ms for row in rows))
        known = [row.work_ms for row in configurators if row.name]
        over = skew_of("configurators", known)
        return MapFigures(
            sum(row.partials for row in rows),
            sum(row.slices for row in rows),
            sum(row.work_ms for row in rows),
            Operations(
                sum(row.operations.adds for row in rows),
                sum(row.operations.modifies for row in rows),
                sum(row.operations.deletes for row in rows),
            ),
            self.entries.now,
            self.entries.most,
            tuple(rows),
            configurators,
            skew.max_over_mean if skew else None,
            over.max_over_mean if over else None,
        )

    def change_to(self, other: "MapReplay") -> Operations:
        """The flow operations to go over to the other maps, with the records that are active now.

        Partitions that both have are not touched.
        """
        counts = count([difference(self._entries_beside(other), other._entries_beside(self))])
        return Operations(counts[Change.ADD], counts[Change.MODIFY], counts[Change.DELETE])

    def _entries_beside(self, other: "MapReplay") -> dict[str, list[FlowEntry]]:
        """The entries of partitions that the other one does not have, by switch."""
        found: dict[str, list[FlowEntry]] = {}
        for name, partitions in self.partitions.items():
            for leaf, partition in partitions.items():
                if leaf not in other.partitions[name]:
                    for switch, entries in partition.engine.entries().items():
                        found.setdefault(switch, []).extend(entries)
        return found

    def _send(
        self,
        space: str,
        leaf: str,
        record: Request,
        regions: tuple[Region, ...] = (),
        edge: tuple[Region, ...] = (),
    ) -> None:
        task = Task(record.id, record.host, record.advertised, regions, edge)
        self.partitions[space][leaf].put(task)


def _joined(first: Partial, second: Partial) -> Partial:
    """A share with the regions and edges of both, each of them once."""
    regions = tuple(dict.fromkeys(first.regions + second.regions))
    return replace(second, regions=regions, edge=tuple(dict.fromkeys(first.edge + second.edge)))


def _same(first: Partial, second: Partial) -> bool:
    return set(first.regions) == set(second.regions) and set(first.edge) == set(second.edge)


def _figures(
    name: str, space: str, configurator: str, partition: PartitionReplay
) -> PartitionFigures:
    return PartitionFigures(
        name,
        space,
        configurator,
        partition.partials,
        partition.slices,
        partition.seconds * 1_000,
        partition.counted,
        partition.engine.count(),
    )


def _by_configurator(rows: list[PartitionFigures]) -> tuple[ConfiguratorFigures, ...]:
    groups: dict[str, list[PartitionFigures]] = {}
    for row in rows:
        groups.setdefault(row.configurator, []).append(row)
    found = [
        ConfiguratorFigures(
            name,
            len(group),
            sum(row.partials for row in group),
            sum(row.work_ms for row in group),
            sum(row.operations.total for row in group),
        )
        for name, group in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.work_ms, each.name)))
