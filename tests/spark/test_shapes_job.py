"""The job `shapes` on small traces whose answers are worked out by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from configurators.state.spaces import new_space
from configurators.state.trace_spaces import encode_footer
from configurators.store.model import SpaceDoc
from dispatcher.reports.traces import EVENTS
from dzflow.index import Shape
from spark.reading import find_events, find_traces, read_events
from spark.sampling import priority_sample
from spark.shapes import job as shapes_job
from spark.shapes.job import make_shapes
from spark.shapes.model import Change, Prediction, ShapesFound, SpaceShapes
from spark.shapes.options import ShapesOptions
from spark.spaces import UnknownTraceSpace
from tests.spark.rows import BEGAN, row, write_rows

AXES = [{"name": name, "type": "int", "min": 0, "max": 255} for name in "xy"]
POOR: tuple[Shape, ...] = ((0, 0), (1, 0))  # nothing but the leading bit of x


def space(
    shapes: Sequence[Shape] | None = POOR, name: str = "plain", number: int = 1, **index: Any
) -> SpaceDoc:
    """A space of two attributes of eight bits."""
    doc = new_space(name, number, {"attributes": AXES, "index": index}, "legs", 1)
    given = tuple(shapes) if shapes is not None else None
    return replace(doc, versions={0: replace(doc.versions[0], shapes=given)})


def wants(id: str, filter: object, **more: Any) -> dict[str, Any]:
    """A subscription of a space to a filter; the space is part of the id."""
    name = id.partition("-")[0]
    target = f"s{id}".partition(".")[0]
    given = {"space": name, "target_id": target, "filter": json.dumps(filter)}
    return row(f"s{id}", **given | more)


def event(space: str, x: int, y: int, weight: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """A sampled event."""
    plain = {"space": space, "host": "h2", "time_us": BEGAN + 5, "weight": weight}
    return plain | {"values": json.dumps({"x": x, "y": y})} | more


LOW, HIGH, OTHER = {"y": {"lt": 64}}, {"y": {"gte": 192}}, {"x": {"lt": 3}}
LATER = BEGAN + 10_000

REQUESTS = [
    # A filter on an attribute that has no shapes, without and with events.
    wants("plain-1", LOW),
    wants("events-1", LOW),
    # Three subscriptions with one filter; and one with two partials, which counts once.
    *(wants(f"often-{n}", LOW) for n in range(3)),
    wants("often-3", {"x": {"lt": 128}}),
    wants("often-3", {"x": {"lt": 128}}, partition="1.0/other"),
    # One ends, one changes twice at the same time, one is refused a change, and one altogether.
    wants("last-1", LOW),
    wants("last-1.1", LOW, kind="unsubscribe", received_us=LATER),
    wants("last-2", LOW),
    wants("last-2.1", OTHER, kind="update", received_us=LATER),
    wants("last-2.2", HIGH, kind="update", received_us=LATER),
    wants("last-3", HIGH),
    wants("last-3.1", OTHER, kind="update", received_us=LATER),
    wants("last-3.1", OTHER, kind="update", received_us=LATER, outcome="failed"),
    wants("last-4", OTHER, outcome="failed"),
    wants("last-5", OTHER, kind="advertise", target_id="alast-5"),
    # One ends before it begins: another process had another clock.
    wants("last-6", OTHER),
    wants("last-6.1", OTHER, kind="unsubscribe", received_us=BEGAN, done_us=BEGAN - 1),
    wants("ended-1", LOW),
    wants("ended-1.1", LOW, kind="unsubscribe"),
    wants("outside-1", {"x": {"lt": 32}}),
    wants("good-1", {"x": {"lt": 128}}),
    wants("damaged-1", LOW),
    wants("damaged-2", {"colour": {"eq": "red"}}),
    wants("damaged-3", {}) | {"filter": "no JSON"},
    wants("unreadable-1", "colour == 3"),
    wants("zorder-1", LOW),
    wants("gone-1", {}),
]
SAMPLES = [
    *(event("events", 0, 0, 30.0), event("events", 0, 200, 6.0), event("events", 0, 200, 4.0)),
    event("events", 200, 100, None),
    *(event("outside", 200, n) for n in range(9)),
    *(event("damaged", 0, 0), event("damaged", 0, 200)),
    event("damaged", 1, 1, values='{"x": 1}'),
    event("damaged", 1, 1, values="?"),
    event("nowhere", 0, 0, 7.0),
]
NAMES = ("plain", "events", "often", "last", "ended", "outside", "good", "damaged", "unreadable")


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ShapesFound:
    """What the job finds in traces with a space for each case."""
    folder = tmp_path_factory.mktemp("traces")
    docs = [space(name=name, number=n) for n, name in enumerate(NAMES, 1)]
    docs.append(space(None, "zorder", len(NAMES) + 1, kind="zorder"))
    return job(spark, folder, REQUESTS, SAMPLES, docs)


def of(found: ShapesFound, name: str) -> SpaceShapes:
    (result,) = (each for each in found.spaces if each.space == name)
    return result


def figures(result: SpaceShapes) -> tuple[Prediction, Prediction]:
    assert result.before is not None
    assert result.after is not None
    return result.before, result.after


def job(
    spark: SparkSession,
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]] = (),
    docs: Sequence[SpaceDoc] = (),
    **options: Any,
) -> ShapesFound:
    write_rows(folder / "requests", rows, footer=encode_footer(docs or [space()]).entries)
    if given := list(events):
        write_rows(folder / "events", given, schema=EVENTS)
    return run(spark, folder, **options)


def run(spark: SparkSession, folder: Path, **options: Any) -> ShapesFound:
    traces = find_traces(spark, str(folder))
    return make_shapes(spark, str(folder), traces, ShapesOptions(**options))


def only(found: ShapesFound) -> SpaceShapes:
    (result,) = found.spaces
    return result


def test_a_filter_on_an_attribute_without_shapes_gets_one(found: ShapesFound) -> None:
    result = of(found, "plain")
    assert (result.subscriptions, result.filters, result.sampled) == (1, 1, 1)
    assert (result.events, result.basis, result.active) == (0, "uniform", True)
    before, after = figures(result)
    # A quarter of all events is wanted, and all come; then only the quarter comes.
    assert (before.unwanted, before.entries, before.masks, before.shapes) == (0.75, 1.0, 1, 2)
    assert (after.unwanted, after.entries, after.masks) == (0.0, 1.0, 1)
    assert result.change == Change(gain=0.75, filters=1, added=1, removed=1)
    proposal = result.proposal
    assert proposal is not None
    assert (proposal.space, proposal.version) == ("plain", 0)
    assert {(0, 0), (0, 2)} <= set(proposal.shapes)
    # Filters of other kinds find shapes as well, although nobody has asked for any yet.
    assert any(x and y for x, y in proposal.shapes)
    assert len(proposal.shapes) <= 64
    assert "unwanted events fall from 75.0% to 0.0%" in proposal.reasons[0]


def test_sampled_events_count_as_often_as_they_were_published(found: ShapesFound) -> None:
    result = of(found, "events")
    assert (result.events, result.basis, result.damaged_events) == (3, "events", 0)
    before, after = figures(result)
    assert before.unwanted == pytest.approx(11 / 41)
    assert after.unwanted == 0.0
    assert result.change.gain == pytest.approx(11 / 41)


def test_filters_count_as_often_as_subscriptions_have_them(found: ShapesFound) -> None:
    result = of(found, "often")
    assert (result.subscriptions, result.filters) == (4, 2)
    before, _ = figures(result)
    # Three get all and want a quarter; one gets a half and wants it.
    assert before.unwanted == pytest.approx(1 - (3 * 0.25 + 0.5) / (3 + 0.5))
    assert result.change.gain == pytest.approx(1 - 1.25 / 3.5)
    assert replace(result.change, gain=0.0) == Change(filters=3, added=3, removed=3)


def test_the_last_request_of_a_subscription_says_what_it_wants(found: ShapesFound) -> None:
    result = of(found, "last")
    assert (result.subscriptions, result.filters, result.active) == (2, 1, True)
    assert result.change.filters == 2


def test_if_no_subscription_is_active_all_count(found: ShapesFound) -> None:
    result = of(found, "ended")
    assert (result.active, result.subscriptions, result.filters) == (False, 1, 1)
    assert result.proposal is not None


def test_events_outside_all_regions_say_nothing(found: ShapesFound) -> None:
    result = of(found, "outside")
    # All events lie in the upper half, and the filter has the lower one.
    assert (result.events, result.basis) == (9, "uniform")
    assert figures(result)[0].unwanted == pytest.approx(0.75)


def test_where_nothing_is_gained_nothing_is_proposed(found: ShapesFound) -> None:
    result = of(found, "good")
    assert result.proposal is None
    assert result.why == "the present shapes are as good: no filter would get other regions"


def test_what_does_not_fit_is_counted_and_left_out(found: ShapesFound) -> None:
    result = of(found, "damaged")
    assert (result.subscriptions, result.filters, result.sampled, result.damaged) == (3, 3, 3, 2)
    assert (result.events, result.damaged_events) == (2, 2)
    assert figures(result)[0].unwanted == 0.5


def test_without_a_filter_that_fits_there_is_no_prediction(found: ShapesFound) -> None:
    result = of(found, "unreadable")
    assert (result.before, result.after, result.proposal) == (None, None, None)
    assert "no filter of its subscriptions can be read" in result.why


def test_an_index_without_shapes_says_so(found: ShapesFound) -> None:
    result = of(found, "zorder")
    assert (result.proposal, result.before) == (None, None)
    assert result.why.startswith("its index is of kind zorder")


def test_unknown_spaces_are_left_out_with_a_notice(found: ShapesFound) -> None:
    assert found.source.notices == (
        "gone is left out (1 subscriptions and 0 events): no file describes the space.",
        "nowhere is left out (0 subscriptions and 7 events): no file describes the space.",
    )


def test_spaces_with_most_subscriptions_come_first(found: ShapesFound) -> None:
    counts = [(each.space, each.subscriptions) for each in found.spaces]
    assert counts[:4] == [("often", 4), ("damaged", 3), ("last", 2), ("ended", 1)]
    assert len(counts) == len(NAMES) + 1


def test_a_space_and_a_time_can_be_chosen(spark: SparkSession, tmp_path: Path) -> None:
    rows = [wants("plain-1", LOW), wants("plain-2", {}, received_us=LATER), wants("bonds-1", LOW)]
    events = [event("plain", 0, 0), event("plain", 0, 200, None, time_us=LATER)]
    docs = [space(), space(name="bonds", number=2)]
    result = only(job(spark, tmp_path, rows, events, docs, space="plain", until_us=LATER))
    assert (result.space, result.filters, result.events) == ("plain", 1, 1)
    with pytest.raises(UnknownTraceSpace, match="there is bonds, plain"):
        run(spark, tmp_path, space="gone")


def test_traces_without_subscriptions_give_nothing(spark: SparkSession, tmp_path: Path) -> None:
    none = job(spark, tmp_path, [])
    assert (none.source.rows, none.spaces) == (0, ())
    advertised = wants("plain-1", {}, kind="advertise", target_id="aplain-1")
    none = job(spark, tmp_path, [advertised])
    assert (none.source.rows, none.spaces) == (1, ())


def test_events_are_found_beside_a_folder_or_a_file_of_requests(
    spark: SparkSession, tmp_path: Path
) -> None:
    requests = tmp_path / "traces" / "requests"
    file = write_rows(requests, [row("s1-1")])
    write_rows(tmp_path / "traces" / "events", [event("plain", 0, 0)], schema=EVENTS)
    for path in (tmp_path, tmp_path / "traces", requests, file, f"{requests}/"):
        assert [each.rows for each in find_events(spark, str(path)).files] == [1]
    assert find_events(spark, str(tmp_path / "elsewhere")).files == ()


def test_files_of_events_may_be_damaged_or_old_or_vanish(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "events"
    gone = write_rows(folder, [event("plain", 0, 200)] * 7, "gone.parquet", schema=EVENTS)

    def read_late(*given: Any) -> DataFrame:
        gone.unlink()
        return read_events(*given)

    monkeypatch.setattr(shapes_job, "read_events", read_late)
    old = pa.schema([field for field in EVENTS if field.name != "weight"])
    write_rows(folder, [event("plain", 0, 0), event("plain", 0, 200)], "old.parquet", schema=old)
    (folder / "a.parquet").write_bytes(b"PAR1 and no more")
    write_rows(folder, [], "b.parquet", schema=pa.schema([("space", pa.string())]))
    found = job(spark, tmp_path, [wants("plain-1", LOW)])
    names = [file.name for file in found.source.skipped]
    assert names == ["a.parquet", "b.parquet", gone.name]
    assert found.source.skipped[1].why == (
        "it lacks the column host: it is no file of traces of events"
    )
    result = only(found)
    assert (result.events, figures(result)[0].unwanted) == (2, 0.5)


def test_a_sample_is_bounded_keeps_heavy_rows_and_is_the_same_every_time(
    spark: SparkSession,
) -> None:
    rows = [(f"f{n}", 1.0) for n in range(1_000)] + [("heavy", 5_000.0)]
    frame = spark.createDataFrame(rows, "filter string, weight double")
    found = priority_sample(frame, "weight", ["filter"], 6_000.0, 100)
    assert len(found) == 100
    assert sum(each.weight for each in found) == pytest.approx(6_000)
    assert found[0].row["filter"] == "heavy"
    assert found[0].weight == pytest.approx(5_000, rel=0.05)
    light = {each.weight for each in found[1:]}
    assert len(light) == 1  # all stand for as many
    again = priority_sample(frame.repartition(5), "weight", ["filter"], 6_000.0, 100)
    assert again == found
