"""What partitions are built from: the records as they are stored."""

import pytest
from msgspec.structs import replace

from configurators.state.loading import last_seq, partials
from configurators.state.spaces import LoadedSpace, new_space
from configurators.store.model import NextFilter, Record, RecordKind
from configurators.streams.packing import pack_regions
from configurators.streams.task_numbers import last_number
from dzflow.region import Region
from sdn.tables.pipeline import PlanName

SCHEMA = {"attributes": [{"name": "x", "type": "int", "min": 0, "max": 65535, "bits": 16}]}


def record(kind: RecordKind, regions: dict[int, bytes]) -> Record:
    return Record("r", kind, "h1", "small", "", regions, "active", 5, 0.0)


def loaded(
    view: LoadedSpace, found: Record, settled: bool = False
) -> dict[str, tuple[set[Region], set[Region]]]:
    return {
        name: (set(one.partial.regions), set(one.partial.edge))
        for name, one in partials([found], view.versions.values(), settled)
    }


@pytest.mark.parametrize("kind", ["subscription", "advertisement"])
@pytest.mark.parametrize("plan", ["legs", "lpm"])
def test_during_an_update_a_partition_has_what_both_filters_want(
    plan: PlanName, kind: RecordKind
) -> None:
    view = LoadedSpace.of(new_space("small", 5, SCHEMA, plan, 5))
    packed = [
        {n: pack_regions(found) for n, found in view.regions(text).items()}
        for text in ("x < 20000", "x > 10000")
    ]
    old, new = (record(kind, regions) for regions in packed)
    open_ = replace(old, next=NextFilter("x > 10000", new.regions))
    before, after = loaded(view, old), loaded(view, new)
    assert loaded(view, open_, settled=True) == before
    removing = replace(old, state="removing")
    assert not loaded(view, removing)  # it never was active: switches may lack its flows
    assert not loaded(view, removing, settled=True)
    removed_later = replace(removing, acknowledged=1.0)
    assert loaded(view, removed_later) == loaded(view, removed_later, settled=True) == before
    nothing: tuple[set[Region], set[Region]] = (set(), set())
    for name, (regions, edge) in loaded(view, open_).items():
        old_regions, old_edge = before.pop(name, nothing)
        new_regions, new_edge = after.pop(name, nothing)
        assert regions == old_regions | new_regions
        assert edge == old_edge | new_edge
    assert not before
    assert not after
    for _, one in partials([open_], view.versions.values()):
        assert len(set(one.partial.regions)) == len(one.partial.regions)
        assert one.seq == last_number(4)


def test_tasks_of_what_is_settled_count_no_more_and_those_of_what_is_open_do() -> None:
    settled = record("subscription", {})
    assert last_seq(settled) == last_number(5)
    assert last_seq(replace(settled, state="removing")) == last_number(4)
    assert last_seq(replace(settled, next=NextFilter("", {}))) == last_number(4)
