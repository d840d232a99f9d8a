"""The requests that generated traces consist of: real filters, routed by a real partition map."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import Struct

from bench.trace_jobs.equal_maps import equal_map
from bench.workload import Distribution, HostFilter, Workload, make_index, make_request, make_space
from configurators.engine.partition_map import PartitionMap, route
from configurators.store.keys import PartitionName
from configurators.store.model import SpaceDoc, Version
from dzflow.filters import Filter
from dzflow.index import FieldsIndex, Index
from dzflow.intervals import Key

NUMBER = 1  # of the space
VERSION = 0  # of its index


class Partial(NamedTuple):
    """What a request tells one partition."""

    partition: str
    regions: tuple[str, ...]


class PooledFilter(NamedTuple):
    """A filter as the service stores it, and the partials of a request for it."""

    text: str
    partials: tuple[Partial, ...]


class Origin(Struct, frozen=True):
    """Where the requests of a trace come from: a space with its map and owners, and a workload."""

    index: Index
    map: PartitionMap
    owners: dict[str, str]  # the configurator of each partition, by leaf
    filters: tuple[HostFilter, ...]
    others: tuple[HostFilter, ...]  # from the same workload, but not in the trace
    publishers: tuple[HostFilter, ...]
    events: tuple[tuple[Key, ...], ...]
    other_events: tuple[tuple[Key, ...], ...]

    @property
    def document(self) -> SpaceDoc:
        """The space as the service stores it."""
        index = self.index
        shapes = index.shapes if isinstance(index, FieldsIndex) else None
        version = Version(index.space.to_json(), shapes, self.map)
        return SpaceDoc(index.space.name, NUMBER, {VERSION: version}, VERSION)


def make_origin(
    filters: int,
    events: int,
    partitions: int,
    configurators: int,
    distribution: Distribution = "zipf",
    seed: int = 1,
) -> Origin:
    """A space that is cut into equal partitions, which belong to the configurators in turn."""
    index = make_index(make_space("fields"))
    workload = Workload(index.space, distribution, seed)
    drawn = list(workload.subscriptions(2 * filters))
    seen = workload.events(2 * events)
    partition_map = equal_map(index, "legs", partitions)
    names = [f"configurator-{n}" for n in range(configurators)]
    return Origin(
        index,
        partition_map,
        owners_in_turn(partition_map, names),
        tuple(drawn[:filters]),
        tuple(drawn[filters:]),
        tuple(workload.publishers()),
        tuple(seen[:events]),
        tuple(seen[events:]),
    )


def owners_in_turn(partition_map: PartitionMap, configurators: Sequence[str]) -> dict[str, str]:
    """An owner for each leaf: the configurators in turn."""
    leaves = partition_map.leaves()
    return {leaf: configurators[n % len(configurators)] for n, leaf in enumerate(leaves)}


def pooled(origin: Origin, advertised: bool, most: int | None = None) -> Iterator[PooledFilter]:
    """The filters of a trace: those of subscriptions, or those of publishers."""
    for each in islice(origin.publishers if advertised else origin.filters, most):
        request = make_request(origin.index, "", each, advertised)
        partials = tuple(
            Partial(str(PartitionName(NUMBER, VERSION, leaf)), tuple(map(str, part.regions)))
            for leaf, part in route(origin.map, request).items()
        )
        yield PooledFilter(filter_text(each.filter), partials)


def filter_text(wanted: Filter) -> str:
    """The filter as JSON, in the form that users send."""
    (conjunction,) = wanted.any
    conditions = {
        name: {"gte": low, "lte": high - 1}  # type: ignore[operator]
        for name, ((low, high),) in conjunction.ranges.items()
    }
    return msgspec.json.encode(conditions).decode()
