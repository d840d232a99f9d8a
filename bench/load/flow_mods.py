"""The flow-mods that the requests of a benchmark take, decided without the service."""

from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random

from bench.load.traffic import scale_down
from bench.workload import Distribution, Workload, make_index, make_request, make_space
from configurators.engine.engine import Engine
from configurators.engine.map_planner import first_map
from configurators.engine.partials import Partial
from configurators.engine.partition_map import route, route_removal
from dzflow.address import Scope
from sdn.network.routes import Routes
from sdn.network.topology import Topology
from sdn.network.trees import spanning_tree
from sdn.tables.flows import FlowOp
from sdn.tables.pipeline import Pipeline
from sdn.tables.plans import make_plan

TOGETHER = 1_000  # requests that are decided together; the load keeps 2,000 in progress

Routed = dict[str, Partial]
"""The partials of a request, by partition."""


def flow_mods(
    network: Topology, distribution: Distribution, active: int, requests: int, partitions: int
) -> dict[str, list[FlowOp]]:
    """The operations for each switch, in order: subscriptions until so many are active, then more
    subscriptions and removals in equal numbers.

    Space, publishers, filters and partition map are those of the service under `Traffic`. It cuts
    slices by the clock, so its own operations differ a little in number and order.
    """
    index = make_index(make_space("fields"))
    cut = first_map(index, "legs", partitions)
    pipeline = Pipeline().extended(network)
    routes = Routes(network, {0: spanning_tree(network)})
    plan = make_plan(routes, pipeline, Scope(1))
    engines = {name: Engine(plan) for name in cut.leaves()}
    workload = Workload(make_space("fields"), distribution)
    hosts = len(network.hosts)
    for number, publisher in enumerate(workload.publishers()):
        wanted = scale_down(publisher, hosts)
        advertisement = make_request(index, f"p{number}", wanted, advertised=True)
        for name, partial in route(cut, advertisement).items():
            engines[name].load([partial])
    new = (
        make_request(index, f"s{number}", scale_down(wanted, hosts))
        for number, wanted in enumerate(workload.subscriptions(active + requests // 2))
    )
    kept = list(islice(new, active))
    random = Random(1)
    found: dict[str, list[FlowOp]] = {switch.id: [] for switch in network.switches}

    def decide(together: Iterable[Routed]) -> None:
        queues: dict[str, list[Partial]] = {}
        for partials in together:
            for name, partial in partials.items():
                queues.setdefault(name, []).append(partial)
        for name, queue in queues.items():
            decision = engines[name].decide(queue, "net")
            engines[name].commit(decision)
            for batch in decision.rounds:
                for switch, ops in batch.items():
                    found[switch] += ops

    def churn() -> Iterator[list[Routed]]:
        while added := list(islice(new, min(TOGETHER // 2, active))):
            random.shuffle(kept)
            gone, kept[: len(added)] = kept[: len(added)], added
            arriving = [route(cut, each) for each in added]
            yield arriving + [route_removal(cut, each) for each in gone]

    for start in range(0, active, TOGETHER):
        decide([route(cut, each) for each in kept[start : start + TOGETHER]])
    for together in churn():
        decide(together)
    return found
