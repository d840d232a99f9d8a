"""Two subscribers and a publisher on a ring of four switches, all in one process."""

from configurators.engine.engine import Engine
from configurators.engine.partials import Request
from configurators.engine.partition_map import PartitionMap, route
from dzflow.address import Scope
from dzflow.filters import conjunction_text, parse_filter
from dzflow.index import build_index
from dzflow.space import Space
from sdn.network.routes import Routes
from sdn.network.topologies import topology
from sdn.network.trees import spanning_tree
from sdn.tables.pipeline import Pipeline
from sdn.tables.plans import make_plan
from sdn.tables.simulate import SimulatedNetwork

space = Space.from_json(
    "stocks",
    {
        "attributes": [
            {"name": "price", "type": "float", "min": 0, "max": 1000},
            {"name": "symbol", "type": "enum", "values": ["ACME", "INIT", "ZORK"]},
        ]
    },
)
index = build_index(space)
ring = topology("ring:4")
scope = Scope(space=1)
pipeline = Pipeline().extended(ring)
engine = Engine(make_plan(Routes(ring, {0: spanning_tree(ring)}), pipeline, scope))
network = SimulatedNetwork(ring, pipeline)

for name, host, text, advertised in [
    ("p1", "h1", "price > 0", True),
    ("s1", "h2", 'price >= 420 and symbol == "ACME"', False),
    ("s2", "h3", "price < 100 or price > 900", False),
]:
    regions = index.regions(parse_filter(space, text))
    request = Request(advertised, name, host, regions)
    decision = engine.decide([route(PartitionMap("legs"), request)["all"]])
    network.apply(decision.rounds)  # here the switches acknowledge
    engine.commit(decision)
    operations = sum(len(ops) for batch in decision.rounds for ops in batch.values())
    print(f"{host} {text!r}: {len(regions)} regions, {operations} flow operations")
    print(
        "   ", " or ".join(conjunction_text(space, index.conjunction(region)) for region in regions)
    )

for event in [{"price": 500, "symbol": "ACME"}, {"price": 950, "symbol": "ACME"}]:
    address = scope.event(index.point(space.keys(event)), tree=0)
    print(event, "reaches", sorted(network.send("h1", address).hosts))
