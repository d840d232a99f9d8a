"""Hypothesis strategies that several tests share."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from dzflow.filters import Filter, parse_filter
from dzflow.index import build_index
from dzflow.space import Space
from sdn.network.topology import Host, Link, Switch, Topology
from sdn.network.topology_file import FreePorts
from sdn.tables.pipeline import PlanName


@st.composite
def topologies(draw: st.DrawFn, max_switches: int = 8, max_hosts: int = 6) -> Topology:
    """Connected networks: a random tree, extra links (some parallel), hosts anywhere.

    Ports are numbered in random order, so that no port means anything by its number.
    """
    count = draw(st.integers(1, max_switches))
    names = [f"s{n}" for n in range(1, count + 1)]
    pairs = [(names[draw(st.integers(0, n - 1))], names[n]) for n in range(1, count)]
    if count > 1:
        pair = st.tuples(st.sampled_from(names), st.sampled_from(names))
        pairs += draw(st.lists(pair.filter(lambda ends: ends[0] != ends[1]), max_size=count))
    homes = draw(st.lists(st.sampled_from(names), max_size=max_hosts))

    ports = FreePorts()
    ends = [end for pair in pairs for end in pair] + homes
    numbers = [0] * len(ends)
    # A seed, for hypothesis's own permutations take longer than all the rest.
    for i in Random(draw(st.integers(0, 255))).sample(range(len(ends)), len(ends)):
        numbers[i] = ports.take(ends[i])
    cables = [Link(a, numbers[2 * i], b, numbers[2 * i + 1]) for i, (a, b) in enumerate(pairs)]
    hosts = [Host(f"h{i + 1}", home, numbers[2 * len(pairs) + i]) for i, home in enumerate(homes)]
    return Topology.build([Switch(name, n) for n, name in enumerate(names, 1)], cables, hosts)


SPACES = {
    kind: Space.from_json(
        "small",
        {
            "attributes": [
                {"name": "x", "type": "int", "min": 0, "max": 15},
                {"name": "y", "type": "float", "min": 0, "max": 1, "bits": 4},
                {"name": "colour", "type": "enum", "values": ["red", "green", "blue"]},
            ],
            "index": {"kind": kind, "budget": 4, "shapes": 12},
        },
    )
    for kind in ("fields", "zorder")
}
INDEXES = {kind: build_index(space) for kind, space in SPACES.items()}
COMBINATIONS: list[tuple[PlanName, str]] = [
    ("legs", "fields"),
    ("legs", "zorder"),
    ("lpm", "zorder"),
]


@st.composite
def filters(draw: st.DrawFn, space: Space) -> Filter:
    """Filters on one of the small spaces, mostly of one conjunction, some of two."""
    objects = draw(
        st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "x": _pairs(st.integers(0, 15)),
                    "y": _pairs(st.integers(0, 16).map(lambda n: n / 16)),
                    "colour": st.sampled_from(["red", "green", "blue"]).map(lambda c: {"eq": c}),
                },
            ),
            min_size=1,
            max_size=2,
        )
    )
    return parse_filter(space, objects)


def _pairs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(values, values).map(lambda pair: {"between": sorted(pair)})


def events() -> st.SearchStrategy[dict[str, Any]]:
    """Events of the small spaces."""
    return st.fixed_dictionaries(
        {
            "x": st.integers(0, 15),
            "y": st.integers(0, 16).map(lambda n: n / 16),
            "colour": st.sampled_from(["red", "green", "blue"]),
        }
    )
