"""Unwanted deliveries under the dictionary of a new space, and under the one that `shapes` learns.

They are counted one by one, with filters and events that are not in the traces.
"""

from bench.engines.unwanted import count_deliveries
from bench.report import Row
from bench.trace_jobs.pool import Origin
from configurators.state.indexes import quiet_index
from dzflow.index import Index
from spark.shapes.model import Prediction, SpaceShapes

SCHEMA = "from the schema"
LEARNED = "learned by the job"


def measure_shapes(origin: Origin, result: SpaceShapes, most_filters: int) -> list[Row]:
    """What the job predicts, and what is counted, for both dictionaries.

    If the job proposes none, the present one stays, and both rows are about it.
    """
    index = origin.index
    learned = index
    if result.proposal:
        learned = quiet_index(index.space, index.version, result.proposal.shapes)
    return [
        _row(SCHEMA, origin, index, result.before, most_filters),
        _row(LEARNED, origin, learned, result.after, most_filters),
    ]


def _row(
    name: str, origin: Origin, index: Index, told: Prediction | None, most_filters: int
) -> Row:
    filters = [each.filter for each in origin.others[:most_filters]]
    found = count_deliveries(index, filters, origin.other_events)
    return {
        "measure": "shapes",
        "dictionary": name,
        "filters": len(filters),
        "events": len(origin.other_events),
        "predicted_entries": told.entries if told else None,
        "entries_per_filter": found.entries / len(filters),
        "predicted_unwanted_share": told.unwanted if told else None,
        "unwanted_share": found.unwanted / found.delivered,
        "unwanted": found.unwanted,
    }


def shape_ratios(rows: list[Row]) -> dict[str, float]:
    """Unwanted deliveries after over before: counted, and as predicted."""
    by_name = {row["dictionary"]: row for row in rows if row["measure"] == "shapes"}
    if not by_name:
        return {}
    before, after = by_name[SCHEMA], by_name[LEARNED]
    found = {"unwanted_after_over_before": after["unwanted"] / max(1, before["unwanted"])}
    if before["predicted_unwanted_share"]:
        told = after["predicted_unwanted_share"] / before["predicted_unwanted_share"]
        found["predicted_unwanted_share_after_over_before"] = told
        share = after["unwanted_share"] / before["unwanted_share"]
        found["unwanted_share_after_over_before"] = share
    return found
