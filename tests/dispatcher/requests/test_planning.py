"""Planning: which record an operation stores, also when it has to be planned again."""

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.store.etcd.client import Access, Etcd
from dispatcher.calls import RecordSpec
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.intake.routing import Routing
from dispatcher.requests.operation import Operation
from tests.simulation.world import SPACE, Shape, documents

SPEC = RecordSpec("h1", SPACE, {})


def planner_and_catalogue() -> tuple[Planner, Catalogue]:
    catalogue = Catalogue(Etcd(Access(("nowhere:1",))), locked=False)
    ids = iter(f"{n:016x}" for n in range(10))
    return Planner("d1", catalogue, Routing(), Clock(), lambda _: next(ids)), catalogue


def test_an_operation_that_is_planned_again_follows_the_number_of_its_space() -> None:
    planner, catalogue = planner_and_catalogue()
    _, space = documents(Shape())
    catalogue.spaces.put(replace(space, number=5))
    operation = Operation.begin("subscription", SPEC, 0.0)
    planner.plan(operation)
    assert operation.record.id.startswith("s5-")
    # The space was deleted, and made again under another number.
    catalogue.spaces.drop(SPACE)
    catalogue.spaces.put(replace(space, number=6))
    planner.plan(operation)
    assert operation.record.id.startswith("s6-")
    assert operation.id == operation.record.id


def test_an_id_that_an_idempotency_key_stands_for_stays() -> None:
    planner, catalogue = planner_and_catalogue()
    catalogue.spaces.put(documents(Shape())[1])
    operation = Operation.begin(
        "subscription", SPEC, 0.0, id="s1-00000000000000aa", repeatable=True
    )
    planner.plan(operation)
    planner.plan(operation)
    assert operation.record.id == "s1-00000000000000aa"
