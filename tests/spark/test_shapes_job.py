"""The job `shapes` on small traces whose answers are worked out by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from configurators.state.spaces import new_space
from configurators.state.trace_spaces import encode_footer
from configurators.store.model import SpaceDoc
from dispatcher.reports.traces import EVENTS
from dzflow.index import Shape
from spark.reading import find_events, find_traces
from spark.sampling import priority_sample
from spark.shapes.job import NoSuchTraceSpace, make_shapes
from spark.shapes.model import Change, ShapesFound, SpaceShapes
from spark.shapes.options import ShapesOptions
from tests.spark.rows import BEGAN, row, write_rows

AXES = [{"name": name, "type": "int", "min": 0, "max": 255} for name in "xy"]
POOR: tuple[Shape, ...] = ((0, 0), (1, 0))  # nothing but the leading bit of x


def space(
    shapes: Sequence[Shape] | None = POOR, name: str = "stocks", number: int = 1, **index: Any
) -> SpaceDoc:
    """A space of two attributes of eight bits."""
    doc = new_space(name, number, {"attributes": AXES, "index": index}, "legs", 1)
    given = tuple(shapes) if shapes is not None else None
    return replace(doc, versions={0: replace(doc.versions[0], shapes=given)})


def wants(id: str, filter: object, **more: Any) -> dict[str, Any]:
    """A subscription."""
    return row(id, filter=json.dumps(filter), **more)


def event(x: int, y: int, weight: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """A sampled event."""
    plain = {"space": "stocks", "host": "h2", "time_us": BEGAN + 5, "weight": weight}
    return plain | {"values": json.dumps({"x": x, "y": y})} | more


def job(
    spark: SparkSession,
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]] = (),
    docs: Sequence[SpaceDoc] = (),
    **options: Any,
) -> ShapesFound:
    footer = encode_footer(docs or [space()]).entries
    write_rows(folder / "requests", rows, footer=footer)
    if found := list(events):
        write_rows(folder / "events", found, schema=EVENTS)
    return run(spark, folder, **options)


def run(spark: SparkSession, folder: Path, **options: Any) -> ShapesFound:
    traces = find_traces(spark, str(folder))
    return make_shapes(spark, str(folder), traces, ShapesOptions(**options))


def only(found: ShapesFound) -> SpaceShapes:
    (result,) = found.spaces
    return result


def test_a_filter_on_an_attribute_without_shapes_gets_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = only(job(spark, tmp_path, [wants("s1-1", {"y": {"lt": 64}})]))
    assert (result.subscriptions, result.filters, result.sampled) == (1, 1, 1)
    assert (result.events, result.basis, result.active) == (0, "uniform", True)
    before, after = result.before, result.after
    assert before is not None and after is not None
    # A quarter of all events is wanted, and all come; then only the quarter comes.
    assert (before.unwanted, before.entries, before.masks, before.shapes) == (0.75, 1.0, 1, 2)
    assert (after.unwanted, after.entries, after.masks) == (0.0, 1.0, 1)
    assert result.change == Change(gain=0.75, filters=1, added=1, removed=1)
    proposal = result.proposal
    assert proposal is not None
    assert (proposal.space, proposal.version, proposal.number) == ("stocks", 0, 0)
    assert (0, 0) in proposal.shapes
    assert (0, 2) in proposal.shapes
    # Filters of other kinds find shapes as well, although nobody has asked for any yet.
    assert any(x and y for x, y in proposal.shapes)
    assert len(proposal.shapes) <= 64
    assert "unwanted events fall from 75.0% to 0.0%" in proposal.reasons[0]


def test_sampled_events_count_as_often_as_they_were_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = [event(0, 0, 30.0), event(0, 200, 6.0), event(0, 200, 4.0), event(200, 100, None)]
    result = only(job(spark, tmp_path, [wants("s1-1", {"y": {"lt": 64}})], events))
    assert (result.events, result.basis, result.damaged_events) == (3, "events", 0)
    before, after = result.before, result.after
    assert before is not None and after is not None
    assert before.unwanted == pytest.approx(11 / 41)
    assert after.unwanted == 0.0
    assert result.change.gain == pytest.approx(11 / 41)


def test_filters_count_as_often_as_subscriptions_have_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [wants(f"s1-{n}", {"y": {"lt": 64}}) for n in range(3)]
    rows += [wants("s1-3", {"x": {"lt": 128}})]
    # A request with two partials is still one subscription.
    rows += [wants("s1-3", {"x": {"lt": 128}}, partition="1.0/other")]
    result = only(job(spark, tmp_path, rows))
    assert (result.subscriptions, result.filters) == (4, 2)
    before = result.before
    assert before is not None
    # Three get all and want a quarter; one gets a half and wants it.
    assert before.unwanted == pytest.approx(1 - (3 * 0.25 + 0.5) / (3 + 0.5))
    assert result.change.gain == pytest.approx(1 - 1.25 / 3.5)
    assert replace(result.change, gain=0.0) == Change(filters=3, added=3, removed=3)


def test_the_last_request_of_a_subscription_says_what_it_wants(
    spark: SparkSession, tmp_path: Path
) -> None:
    low, high, other = {"y": {"lt": 64}}, {"y": {"gte": 192}}, {"x": {"lt": 3}}
    at = BEGAN + 10_000
    rows = [
        wants("s1-1", low),
        wants("s1-1.1", low, kind="unsubscribe", target_id="s1-1", received_us=at),
        wants("s1-2", low),
        wants("s1-2.1", other, kind="update", target_id="s1-2", received_us=at),
        wants("s1-2.2", high, kind="update", target_id="s1-2", received_us=at),
        wants("s1-3", high),
        # A change that a switch refused: in one partition it was done, and undone.
        wants("s1-3.1", other, kind="update", target_id="s1-3", received_us=at),
        wants("s1-3.1", other, kind="update", target_id="s1-3", received_us=at, outcome="failed"),
        wants("s1-4", other, outcome="failed"),
        wants("a1-1", other, kind="advertise"),
    ]
    result = only(job(spark, tmp_path, rows))
    assert (result.subscriptions, result.filters) == (2, 1)
    assert result.change.filters == 2


def test_if_no_subscription_is_active_all_count(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        wants("s1-1", {"y": {"lt": 64}}),
        wants("s1-1.1", {"y": {"lt": 64}}, kind="unsubscribe", target_id="s1-1"),
    ]
    result = only(job(spark, tmp_path, rows))
    assert (result.active, result.subscriptions, result.filters) == (False, 1, 1)
    assert result.proposal is not None


def test_events_outside_all_regions_say_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = [wants("s1-1", {"x": {"lt": 32}})]
    result = only(job(spark, tmp_path, rows, [event(200, n) for n in range(9)]))
    # All events lie in the upper half, and the filter has the lower one.
    assert (result.events, result.basis) == (9, "uniform")
    assert result.before is not None
    assert result.before.unwanted == pytest.approx(0.75)


def test_where_nothing_is_gained_nothing_is_proposed(spark: SparkSession, tmp_path: Path) -> None:
    result = only(job(spark, tmp_path, [wants("s1-1", {"x": {"lt": 128}})]))
    assert result.proposal is None
    assert result.why == "the present shapes are as good: no filter would get other regions"


def test_what_does_not_fit_is_counted_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        wants("s1-1", {"y": {"lt": 64}}),
        wants("s1-2", {"colour": {"eq": "red"}}),
        row("s1-3", filter="no JSON"),
    ]
    events = [event(0, 0), event(0, 200), event(1, 1, values='{"x": 1}'), event(1, 1, values="?")]
    result = only(job(spark, tmp_path, rows, events))
    assert (result.subscriptions, result.filters, result.sampled, result.damaged) == (3, 3, 3, 2)
    assert (result.events, result.damaged_events) == (2, 2)
    assert result.before is not None
    assert result.before.unwanted == 0.5


def test_without_a_filter_that_fits_there_is_no_prediction(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = only(job(spark, tmp_path, [row("s1-1", filter='"colour == 3"')]))
    assert (result.before, result.after, result.proposal) == (None, None, None)
    assert "no filter of its subscriptions can be read" in result.why


def test_an_index_without_shapes_says_so(spark: SparkSession, tmp_path: Path) -> None:
    doc = space(None, kind="zorder")
    result = only(job(spark, tmp_path, [wants("s1-1", {"y": {"lt": 64}})], docs=[doc]))
    assert (result.proposal, result.before) == (None, None)
    assert result.why.startswith("its index is of kind zorder")


def test_unknown_spaces_are_left_out_with_a_notice(spark: SparkSession, tmp_path: Path) -> None:
    rows = [wants("s1-1", {"y": {"lt": 64}}), wants("s2-1", {}, space="gone")]
    found = job(spark, tmp_path, rows, [event(0, 0, 7.0, space="nowhere"), event(0, 0)])
    assert only(found).space == "stocks"
    assert found.source.notices == (
        "gone is left out (1 subscriptions and 0 events): no file describes the space.",
        "nowhere is left out (0 subscriptions and 7 events): no file describes the space.",
    )


def test_a_space_can_be_chosen(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        wants("s1-1", {"y": {"lt": 64}}),
        wants("s2-1", {"y": {"lt": 64}}, space="bonds"),
        wants("s2-2", {"y": {"lt": 64}}, space="bonds"),
    ]
    both = job(spark, tmp_path, rows, docs=[space(), space(name="bonds", number=2)])
    assert [each.space for each in both.spaces] == ["bonds", "stocks"]  # most subscriptions first
    assert only(run(spark, tmp_path, space="stocks")).space == "stocks"
    with pytest.raises(NoSuchTraceSpace, match="there is bonds, stocks"):
        run(spark, tmp_path, space="gone")


def test_requests_and_events_can_be_chosen_by_time(spark: SparkSession, tmp_path: Path) -> None:
    rows = [wants("s1-1", {"y": {"lt": 64}}), wants("s1-2", {}, received_us=BEGAN + 50_000)]
    events = [event(0, 0), event(0, 200, time_us=BEGAN + 50_000)]
    result = only(job(spark, tmp_path, rows, events, until_us=BEGAN + 20_000))
    assert (result.filters, result.events) == (1, 1)


def test_traces_without_subscriptions_give_nothing(spark: SparkSession, tmp_path: Path) -> None:
    found = job(spark, tmp_path, [])
    assert (found.source.rows, found.spaces) == (0, ())
    found = job(spark, tmp_path, [wants("a1-1", {}, kind="advertise")])
    assert (found.source.rows, found.spaces) == (1, ())


def test_events_are_found_beside_a_folder_or_a_file_of_requests(
    spark: SparkSession, tmp_path: Path
) -> None:
    requests = tmp_path / "traces" / "requests"
    file = write_rows(requests, [row("s1-1")])
    write_rows(tmp_path / "traces" / "events", [event(0, 0)], schema=EVENTS)
    for path in (tmp_path, tmp_path / "traces", requests, file, f"{requests}/"):
        assert [each.rows for each in find_events(spark, str(path)).files] == [1]
    assert find_events(spark, str(tmp_path / "elsewhere")).files == ()


def test_a_damaged_file_of_events_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "a.parquet").write_bytes(b"PAR1 and no more")
    columns = pa.schema([field for field in EVENTS if field.name != "values"])
    pq.write_table(pa.Table.from_pylist([], columns), tmp_path / "events" / "b.parquet")
    found = job(spark, tmp_path, [wants("s1-1", {"y": {"lt": 64}})])
    assert [file.name for file in found.source.skipped] == ["a.parquet", "b.parquet"]
    assert "lacks the column values: it is no file of traces of events" in (
        found.source.skipped[1].why
    )
    assert only(found).basis == "uniform"


def test_events_of_a_release_without_weights_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = pa.schema([field for field in EVENTS if field.name != "weight"])
    write_rows(tmp_path / "events", [event(0, 0), event(0, 200)], schema=columns)
    result = only(job(spark, tmp_path, [wants("s1-1", {"y": {"lt": 64}})]))
    assert result.events == 2
    assert result.before is not None
    assert result.before.unwanted == 0.5


def test_a_sample_is_bounded_keeps_heavy_rows_and_is_the_same_every_time(
    spark: SparkSession,
) -> None:
    rows = [(f"f{n}", 1.0) for n in range(1_000)] + [("heavy", 5_000.0)]
    frame = spark.createDataFrame(rows, "filter string, weight double")
    found = priority_sample(frame, "weight", ["filter"], 100)
    assert len(found) == 100
    assert (found[0].row["filter"], found[0].weight) == ("heavy", 5_000.0)
    light = [each.weight for each in found[1:]]
    assert len(set(light)) == 1  # all stand for as many
    assert sum(light) == pytest.approx(1_000, rel=0.3)
    again = priority_sample(frame.repartition(5), "weight", ["filter"], 100)
    assert again == found
