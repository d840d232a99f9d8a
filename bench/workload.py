"""The workload of thesis section 6.6: space, filters, events and requests, made from a seed."""

import warnings
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Literal, NamedTuple

from configurators.engine.partials import Request
from dzflow.errors import LossWarning
from dzflow.filters import Conjunction, Filter
from dzflow.index import FieldsIndex, Index, Sampled, build_index, learn_shapes
from dzflow.intervals import Key
from dzflow.space import Space

Distribution = Literal["uniform", "zipf"]

ATTRIBUTES = 10
TOP = 1023  # the largest value of an attribute
HOSTS = 64
PUBLISHERS = 8
HOTSPOTS = 8
# Percent of the filters that name 1, 2, … 6 attributes.
NAMED = (10, 40, 30, 10, 5, 5)


def make_space(kind: Literal["fields", "zorder"], budget: int = 8, shapes: int = 64) -> Space:
    """The space: ten attributes in [0, 1023]."""
    return Space.from_json(
        "bench",
        {
            "attributes": [
                {"name": f"a{n}", "type": "int", "min": 0, "max": TOP} for n in range(ATTRIBUTES)
            ],
            "index": {"kind": kind, "budget": budget, "shapes": shapes},
        },
    )


def make_index(space: Space) -> Index:
    """The index of a space. Its ten attributes of ten bits lose four bits: no warning is needed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        return build_index(space)


@cache
def learned_index(
    distribution: Distribution, sample: int, budget: int = 8, shapes: int = 64
) -> FieldsIndex:
    """An index of kind `fields` with shapes that were learned from a sample of the workload."""
    space = make_space("fields", budget, shapes)
    workload = Workload(space, distribution, seed=2)
    filters = [Sampled(subscription.filter) for subscription in workload.subscriptions(sample)]
    events = map(Sampled, workload.events(sample // 2))
    return FieldsIndex(space, 0, learn_shapes(space, filters, events))


class HostFilter(NamedTuple):
    """A filter that a host subscribes to, or advertises."""

    host: str
    filter: Filter


class Workload:
    """Filters and events, uniform over the space or Zipf around eight hotspots."""

    def __init__(self, space: Space, distribution: Distribution, seed: int = 1) -> None:
        self.space = space
        self.distribution = distribution
        self._random = Random(seed)
        self._hotspots = [
            [self._random.randint(0, TOP) for _ in range(ATTRIBUTES)] for _ in range(HOTSPOTS)
        ]

    def publishers(self, count: int = PUBLISHERS) -> list[HostFilter]:
        """Advertisements of hosts across the network, an eighth of the space each."""
        size = (TOP + 1) // PUBLISHERS
        found = []
        for n in range(count):
            low = n % PUBLISHERS * size
            wanted = Filter.of(self.space, [Conjunction({"a0": ((low, low + size),)})])
            found.append(HostFilter(f"h{1 + n * HOSTS // count}", wanted))
        return found

    def subscriptions(self, count: int) -> Iterator[HostFilter]:
        """Subscriptions to ranges of a 64th to a quarter of the domain on one to six attributes."""
        random = self._random
        for _ in range(count):
            named = random.choices(range(1, len(NAMED) + 1), NAMED)[0]
            centre = self._draw_point()
            ranges = {}
            for n in random.sample(range(ATTRIBUTES), named):
                width = int(2 ** random.uniform(4, 8))
                low = min(max(0, centre[n] - width // 2), TOP + 1 - width)
                ranges[f"a{n}"] = ((low, low + width),)
            host = f"h{random.randint(1, HOSTS)}"
            yield HostFilter(host, Filter.of(self.space, [Conjunction(ranges)]))

    def events(self, count: int) -> list[tuple[Key, ...]]:
        """Events from the same distribution as the subscriptions."""
        return [tuple(self._draw_point()) for _ in range(count)]

    def _draw_point(self) -> list[int]:
        random = self._random
        if self.distribution == "uniform":
            return [random.randint(0, TOP) for _ in range(ATTRIBUTES)]
        hotspot = random.choices(self._hotspots, [1 / (k + 1) for k in range(HOTSPOTS)])[0]
        # The density falls as 1/distance on both sides of the hotspot; the domain wraps around.
        return [(c + random.choice((-1, 1)) * _zipf_distance(random)) % (TOP + 1) for c in hotspot]


def _zipf_distance(random: Random) -> int:
    """A distance of 1 to 512, with a probability proportional to its reciprocal."""
    return int(512 ** random.random())


def make_request(index: Index, name: str, wanted: HostFilter, advertised: bool = False) -> Request:
    """The request with this id for the filter of a host."""
    return Request(advertised, name, wanted.host, index.regions(wanted.filter))
