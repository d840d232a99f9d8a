"""The peer of the Spark jobs: DuckDB computes the same aggregates of the same files, in SQL.

Percentiles are exact here, and approximate in Spark. `python -m bench.trace_jobs.duck` runs one job
in a process of its own; it must not import Spark, whose start is not what is measured.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import duckdb

JobName = Literal["report", "rebalance"]
Found = dict[str, list[dict[str, Any]]]
"""The rows of each result, by its name."""

WIDTH = 96  # bits of a region
MOST_REGIONS = 12
MOST_EXPENSIVE = 20


class Field(NamedTuple):
    """The leading bits of an attribute in the text of a region."""

    start: int
    length: int


class Question(NamedTuple):
    """What is asked of the traces, besides the job."""

    bucket_s: int = 10  # of the timeline
    fields: Sequence[Field] = ()  # what coarse regions are made of
    scope: str = "1.0"  # how the names of the space's partitions begin


def run_job(job: JobName, folder: Path, question: Question) -> Found:
    """The results of a job on the traces in a folder."""
    import duckdb  # a development tool, which the control plane does without

    with duckdb.connect() as connection:
        pattern = str(folder / "*.parquet").replace("'", "''")
        connection.execute(_ROWS.format(files=pattern))
        if job == "rebalance":
            connection.execute(_FILTERS.format(scope=question.scope))
            return _ask(connection, _REBALANCE, {"scope": question.scope})
        connection.execute(_REQUESTS)
        connection.execute(_RECORDS)
        parts = [f"substring(region, {f.start + 1}, {f.length})" for f in question.fields]
        values = {
            "bucket_us": question.bucket_s * 1_000_000,
            "coarse": " || ".join(["''", *parts]),
            "width": WIDTH,
            "scope": question.scope,
            "most_regions": MOST_REGIONS,
            "most_expensive": MOST_EXPENSIVE,
        }
        return _ask(connection, _REPORT, values)


def _ask(
    connection: "duckdb.DuckDBPyConnection",
    questions: Mapping[str, str],
    values: Mapping[str, object],
) -> Found:
    found: Found = {}
    for name, text in questions.items():
        answer = connection.execute(text.format(**values))
        columns = [column[0] for column in answer.description or ()]
        found[name] = [dict(zip(columns, row, strict=True)) for row in answer.fetchall()]
    return found


_SIZE = "greatest(coalesce(slice_size, 1), 1)"
_ROWS = f"""
CREATE VIEW rows AS
SELECT *,
    greatest(decided_us, 0) / {_SIZE} AS work_us,
    adds + modifies + deletes AS operations
FROM read_parquet('{{files}}')
"""  # noqa: S608 - the path is quoted
_REQUESTS = """
CREATE TEMP TABLE requests AS
SELECT request_id,
    any_value(kind) AS kind,
    any_value(space) AS space,
    any_value(host) AS host,
    any_value(target_id) AS target_id,
    min(received_us) AS received_us,
    max(done_us) AS done_us,
    CASE WHEN max(done_us) >= min(received_us) THEN max(done_us) - min(received_us) END AS total_us,
    sum(work_us) AS work_us,
    count(DISTINCT partition) AS partials,
    sum(len(regions)) AS regions,
    sum(adds) AS adds,
    sum(modifies) AS modifies,
    sum(deletes) AS deletes,
    sum(operations) AS operations,
    bool_or(outcome <> 'done') AS failed
FROM rows GROUP BY request_id
"""
_RECORDS = """
CREATE TEMP TABLE records AS
SELECT space, left(target_id, 1) AS letter, target_id,
    bool_or(kind IN ('subscribe', 'advertise')) AS begun,
    bool_or(kind IN ('unsubscribe', 'unadvertise')) AS ended,
    count(*) FILTER (kind = 'update') AS updated,
    (max(done_us) FILTER (kind IN ('unsubscribe', 'unadvertise'))
        - min(done_us) FILTER (kind IN ('subscribe', 'advertise'))) / 1e6 AS lifetime_s
FROM requests WHERE NOT failed GROUP BY ALL
"""
_FILTERS = """
CREATE TEMP TABLE filters AS
SELECT space, target_id LIKE 'a%' AS advertised, filter,
    sum(work_us) AS work_us, count(*) AS partials
FROM rows
WHERE slice > 0 AND split_part(partition, '/', 1) = '{scope}'
GROUP BY ALL
"""


def _quantiles(value: str, name: str) -> str:
    return f"quantile_disc({value}, [0.5, 0.9, 0.99]) AS {name}"


def _stages(condition: str) -> str:
    return ", ".join(
        f"quantile_disc({stage}_us / 1000, [0.5, 0.9, 0.99]) FILTER ({condition}) AS {stage}"
        for stage in ("queued", "decided", "pushed")
    )


def _loads(columns: str) -> str:
    return f"""
SELECT {columns}, count(*) AS partials, sum(work_us) / 1000 AS work_ms,
    sum(operations)::BIGINT AS operations, {_stages("slice > 0")}
FROM rows GROUP BY {columns} ORDER BY work_ms DESC, {columns}
"""  # noqa: S608 - the columns are ours


def _latency(stage: str, table: str, condition: str = "true") -> str:
    value = f"{stage}_us / 1000"
    return f"""
SELECT '{stage}' AS stage, avg({value}) AS mean_ms, {_quantiles(value, "quantiles")},
    max({value}) AS max_ms
FROM {table} WHERE {condition}
"""  # noqa: S608 - the names are ours


def _histogram(value: str, table: str, group: str = "''") -> tuple[str, str]:
    power = f"CASE WHEN {value} <= 1 THEN 0 ELSE ceil(log2({value})) END::INTEGER"
    about = f"""
SELECT {group} AS name, count(*) AS number, avg({value}) AS mean,
    {_quantiles(value, "quantiles")}, max({value}) AS highest
FROM {table} WHERE {value} >= 0 GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 - the names are ours
    bars = f"""
SELECT {group} AS name, {power} AS power, count(*) AS number
FROM {table} WHERE {value} >= 0 GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 - the names are ours
    return about, bars


_BUCKET = "received_us // {bucket_us} * {bucket_us} AS begin_us"
_OPERATIONS = _histogram("operations", "requests")
_LIFETIMES = _histogram("lifetime_s", "records", "letter || space")
_REPORT = {
    "source": """
SELECT count(*) AS rows, min(received_us) AS begin_us,
    max(greatest(done_us, received_us)) AS end_us, count(*) FILTER (done_us < received_us)
    AS backwards, (SELECT count(*) FROM requests) AS requests
FROM rows
""",
    "timeline_kinds": f"""
SELECT {_BUCKET}, kind, count(*) AS number FROM requests GROUP BY ALL ORDER BY ALL
""",  # noqa: S608 - the expression is ours
    "timeline": f"""
SELECT {_BUCKET}, count(*) FILTER (failed) AS failed, {_quantiles("total_us", "quantiles")}
FROM requests GROUP BY ALL ORDER BY begin_us
""",  # noqa: S608 - the expression is ours
    "kinds": """
SELECT kind, count(*) AS requests, count(*) FILTER (failed) AS failed, avg(partials) AS partials,
    avg(adds) AS adds, avg(modifies) AS modifies, avg(deletes) AS deletes
FROM requests GROUP BY kind ORDER BY requests DESC, kind
""",
    "hosts": """
SELECT host, count(*) AS requests, count(*) FILTER (failed) AS failed,
    sum(work_us) / 1000 AS work_ms
FROM requests GROUP BY host ORDER BY requests DESC, host
""",
    "latency_total": _latency("total", "requests"),
    "latency_queued": _latency("queued", "rows", "slice > 0"),
    "latency_decided": _latency("decided", "rows", "slice > 0"),
    "latency_pushed": _latency("pushed", "rows", "slice > 0"),
    "partitions": _loads("partition, space"),
    "configurators": _loads("configurator"),
    "slices": """
SELECT slice_size, count(*) / slice_size AS number
FROM rows WHERE slice_size > 0 GROUP BY slice_size ORDER BY slice_size
""",
    "operations": _OPERATIONS[0],
    "operation_bars": _OPERATIONS[1],
    "churn": """
SELECT space, letter, count(*) FILTER (begun) AS begun, sum(updated)::BIGINT AS updated,
    count(*) FILTER (ended) AS ended
FROM records GROUP BY ALL ORDER BY space, letter
""",
    "lifetimes": _LIFETIMES[0],
    "lifetime_bars": _LIFETIMES[1],
    "hot": """
WITH told AS (
    SELECT rpad(unnest(regions), {width}, '*') AS region, work_us / len(regions) AS work_us
    FROM rows
    WHERE target_id LIKE 's%' AND len(regions) > 0 AND starts_with(partition, '{scope}/')
)
SELECT {coarse} AS coarse, count(*) AS regions, sum(work_us) / 1000 AS work_ms
FROM told GROUP BY coarse ORDER BY work_ms DESC, coarse LIMIT {most_regions}
""",
    "expensive": """
WITH top AS (
    SELECT * FROM requests ORDER BY work_us DESC, request_id LIMIT {most_expensive}
), texts AS (
    SELECT request_id, any_value(filter) AS filter
    FROM rows WHERE request_id IN (SELECT request_id FROM top) GROUP BY request_id
)
SELECT request_id, work_us / 1000 AS work_ms, total_us / 1000 AS total_ms, partials,
    regions::BIGINT AS regions, operations::BIGINT AS operations, filter
FROM top JOIN texts USING (request_id) ORDER BY work_us DESC, request_id
""",
}
_REBALANCE = {
    "source": """
SELECT count(*) AS rows, min(received_us) AS begin_us,
    max(greatest(done_us, received_us)) AS end_us,
    count(DISTINCT request_id) AS requests
FROM rows
""",
    "totals": f"""
SELECT space, configurator, split_part(partition, '/', 1) = '{{scope}}' AS known,
    sum(work_us) AS work_us, sum(greatest(pushed_us, 0) / {_SIZE}) AS pushed_us,
    sum(operations)::BIGINT AS operations
FROM rows WHERE slice > 0 GROUP BY ALL ORDER BY space, configurator, known
""",  # noqa: S608 - the expression is ours
    "timing": """
SELECT count(DISTINCT received_us // 1000000) AS seconds, avg(work_us) AS work_us,
    avg(greatest(decided_us, 0)) AS decided_us, avg(pushed_us) AS pushed_us,
    arg_max(mode, (done_us, mode)) AS mode
FROM rows WHERE slice > 0
""",
    "owners": """
SELECT partition, arg_max(configurator, (done_us, configurator)) AS configurator
FROM rows WHERE slice > 0 GROUP BY partition ORDER BY partition
""",
    "filters": """
SELECT space, count(DISTINCT filter) AS filters, count(*) AS groups, sum(work_us) AS work_us,
    sum(partials)::BIGINT AS partials
FROM filters GROUP BY space ORDER BY space
""",
}


def main() -> None:
    """Run one job, and write its results as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=("report", "rebalance"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("json", type=Path)
    parser.add_argument("--question", default="[]")
    given = parser.parse_args()
    asked = Question(*json.loads(given.question))
    question = asked._replace(fields=[Field(*field) for field in asked.fields])
    found = run_job(given.job, given.folder, question)
    given.json.write_text(json.dumps(found, default=float))


if __name__ == "__main__":
    main()
