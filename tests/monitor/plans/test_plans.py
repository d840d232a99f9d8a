"""Partition maps are changed while the space is in use, with real switches' acknowledgements."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from configurators.engine.partition_map import Node, PartitionMap
from configurators.store.model import MapPlan
from dispatcher.errors import Conflict, NotFound
from monitor.plans.validation import BadPlan
from tests.etcd import TestEtcd
from tests.rest import shown_flows, subscription
from tests.stack import Stack, StackOptions
from tests.support import until_sync

C0, C1 = "configurator-0", "configurator-1"
SPACE = "cut"
SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    with Stack(etcd_server.access(), StackOptions(configurators=2, partitions=3)) as made:
        httpx.put(f"{made.url}/spaces/{SPACE}", json=SCHEMA, timeout=60).raise_for_status()
        body = {"host": "h1", "space": SPACE, "filter": {}}
        httpx.post(f"{made.url}/advertise", json=body, timeout=60).raise_for_status()
        wanted = [subscription(SPACE, filter={"price": {"gte": low}}) for low in range(0, 1000, 50)]
        httpx.post(f"{made.url}/subscribe", json=wanted, timeout=60).raise_for_status()
        yield made


def begin(stack: Stack, root: Node | None, assignment: dict[str, str] | None = None) -> None:
    view = stack.dispatcher.catalogue.spaces.named(SPACE).current
    plan = PartitionMap("legs", root)
    start = stack.monitor.plans.start
    stack.run(start(SPACE, view.version, view.map_number, plan, assignment or {}))


def ended(stack: Stack) -> MapPlan:
    until_sync(lambda: not any(plan.running for plan in stack.monitor.plans.plans()))
    (plan,) = stack.monitor.plans.plans()
    return plan


def partitions(stack: Stack) -> dict[str, Any]:
    items = httpx.get(f"{stack.url}/partitions", timeout=60).json()["items"]
    return {item["leaf"]: item for item in items if item["space"] == SPACE}


def tables(stack: Stack, source: str) -> dict[str, list[str]]:
    found = {}
    for switch in ("s1", "s2", "s3"):
        url = f"{stack.url}/switches/{switch}/flows?source={source}"
        found[switch] = shown_flows(httpx.get(url, timeout=60).json()["items"])
    return found


def test_the_map_is_changed_while_the_space_is_in_use(stack: Stack) -> None:
    for root, leaves in (
        (Node(1), {"1-0", "1-1", "1-x"}),
        (Node(1, one=Node(2)), {"1-0", "1-1.2-0", "1-1.2-1", "1-1.2-x", "1-x"}),
        (None, {"all"}),
    ):
        begin(stack, root)
        plan = ended(stack)
        assert (plan.phase, plan.text) == ("done", "")
        assert partitions(stack).keys() == leaves
        until_sync(lambda: {item["state"] for item in partitions(stack).values()} == {"ready"})
        assert tables(stack, "dp") == tables(stack, "cp")


def test_a_plan_assigns_partitions(stack: Stack) -> None:
    assignment = {"3-0": C0, "3-1": C1, "3-x": C1}
    begin(stack, Node(3), assignment)
    assert ended(stack).phase == "done"
    assert {leaf: p["configurator"] for leaf, p in partitions(stack).items()} == assignment
    begin(stack, Node(3), {"3-0": C1, "3-1": C0})  # the same map: partitions only move
    assert ended(stack).phase == "done"
    found = {leaf: p["configurator"] for leaf, p in partitions(stack).items()}
    assert found == {"3-0": C1, "3-1": C0, "3-x": C1}


def test_a_plan_that_does_not_fit_changes_nothing(stack: Stack) -> None:
    view = stack.dispatcher.catalogue.spaces.named(SPACE).current
    start, number = stack.monitor.plans.start, view.map_number
    with pytest.raises(Conflict, match="made for the map number 999"):
        stack.run(start(SPACE, 0, 999, PartitionMap("legs"), {}))
    with pytest.raises(Conflict, match="version 3 of the index"):
        stack.run(start(SPACE, 3, number, PartitionMap("legs"), {}))
    with pytest.raises(BadPlan, match="for the plan lpm"):
        stack.run(start(SPACE, 0, number, PartitionMap("lpm"), {}))
    with pytest.raises(Conflict, match="no live configurator"):
        stack.run(start(SPACE, 0, number, PartitionMap("legs"), {"all": "configurator-9"}))
    with pytest.raises(NotFound):
        stack.run(stack.monitor.plans.abort(SPACE))
    assert stack.dispatcher.catalogue.spaces.named(SPACE).current.map_number == number
