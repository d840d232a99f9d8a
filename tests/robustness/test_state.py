"""What the harness finds wrong with owners, moves, plans and the number of configurators."""

import pytest
from msgspec.structs import replace

from configurators.state.network import Network, first_network
from configurators.state.spaces import new_space
from configurators.store.keys import PartitionName
from sdn.network.topologies import topology
from tests.robustness.state import EtcdState

SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}
SPACE = new_space("stocks", 1, SCHEMA, "legs", 3)
LEAVES = [str(PartitionName(1, 0, leaf)) for leaf in SPACE.versions[0].map.leaves()]
GOOD = EtcdState(
    Network.of(first_network(topology("line:2"), "legs", 1)),
    [SPACE],
    [],
    dict.fromkeys(LEAVES, "c1"),
    {},
    {},
    frozenset({"c1", "c2"}),
    2,
)


def test_partitions_with_live_owners_are_in_order() -> None:
    assert GOOD.misplaced(assigned=True) == []
    assert replace(GOOD, wanted=None).misplaced(assigned=True) == []


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (replace(GOOD, moves={LEAVES[0]: "copying"}), "still moving: copying"),
        (replace(GOOD, plans={"stocks": "settling"}), "still being changed: settling"),
        (replace(GOOD, owners=GOOD.owners | {LEAVES[1]: "c3"}), "c3, which is not alive"),
        (replace(GOOD, owners={}), "belongs to None"),
        (replace(GOOD, owners=GOOD.owners | {"1.0/gone": "c1"}), "does not exist"),
        (replace(GOOD, wanted=3), "3 configurators are wanted"),
    ],
)
def test_what_is_not_in_order_is_named(wrong: EtcdState, text: str) -> None:
    assert text in "; ".join(wrong.misplaced(assigned=True))


def test_in_mode_sea_nobody_owns_partitions() -> None:
    assert replace(GOOD, owners={}).misplaced(assigned=False) == []
