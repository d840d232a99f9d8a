"""What a southbound process counts of its switches."""

from configurators.southbound.counts import SouthboundCounts
from configurators.streams.messages import SwitchCounters
from sdn.network.events import Repaired, SwitchDown, SwitchUp
from sdn.outcomes import Acknowledged, Failed, Undefined
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output

OP = FlowOp(Change.ADD, FlowEntry(0, 1, None, (Output(1),)))


def test_batches_count_by_outcome_and_operations_only_if_acknowledged() -> None:
    counts = SouthboundCounts("b1", lambda: 7.0)
    batch = {"s1": [OP, OP], "s2": [OP], "s3": [OP]}
    counts.pushed(
        batch, {"s1": Acknowledged(), "s2": Failed({0: "full"}), "s3": Undefined("gone")}, 0.2
    )
    counts.pushed({"s1": [OP]}, {"s1": Acknowledged()}, 0.3)
    found = counts.current()
    assert (found.southbound, found.started) == ("b1", 7.0)
    assert found.switches == {
        "s1": SwitchCounters(acknowledged=2, operations=3),
        "s2": SwitchCounters(refused=1),
        "s3": SwitchCounters(undefined=1),
    }
    assert (sum(found.pushes.counts), found.pushes.sum) == (2, 0.5)


def test_connections_and_repairs_count_as_the_driver_reports_them() -> None:
    counts = SouthboundCounts()
    for event in (SwitchUp("s1"), SwitchDown("s1", "cut"), SwitchUp("s1"), Repaired("s1", 5)):
        counts.happened(event)
    assert counts.current().switches == {"s1": SwitchCounters(repairs=5, connections=2)}


def test_switches_that_the_network_no_longer_has_are_forgotten() -> None:
    counts = SouthboundCounts()
    for name in ("s1", "s2"):
        counts.happened(SwitchUp(name))
    counts.keep(["s2", "s3"])
    assert counts.current().switches.keys() == {"s2"}
