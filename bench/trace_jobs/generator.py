"""Writes traces of any length, as a service would have: deterministic, and a file at a time.

Subscriptions begin at random times; some change, and some end. The requests of a file end within
it. All columns of a file are made by numpy and pyarrow at once.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from bench.trace_jobs.pool import NUMBER, VERSION, Origin, PooledFilter, pooled
from bench.workload import HOSTS
from configurators.state.trace_spaces import encode_footer
from configurators.store.keys import PartitionName
from dispatcher.reports.traces import EVENTS, REQUESTS

BEGAN = 1_700_000_000_000_000  # microseconds
RATE = 5_000.0  # requests per second, about
FILE_ROWS = 500_000  # as the service writes them
GROUP_ROWS = 10_000
ENDS = 0.6  # share of the records that end, if the file is long enough
CHANGES = 0.05  # share that change their filter
ADVERTISED = 0.002  # share of the records that are advertisements
FAILED = 0.002  # share of the requests that are refused before they are decided
SLICE = 6.0  # partials in a slice, on average
WORK = 250  # microseconds of a partial: at this rate, configurators have something to do
_SPARE = 1.4  # records are drawn for so many times the rows: some of them end after the file
_SPREAD = 0x5851F42D4C957F2D  # odd: ids look random, and no two are the same

_Numbers = NDArray[np.int64]
_BEGIN, _CHANGE, _END = range(3)
_KINDS = ("subscribe", "update", "unsubscribe", "advertise", "update", "unadvertise")


class _Pool(NamedTuple):
    """The filters of all records as columns: those of subscriptions come before the others."""

    subscriptions: int  # how many of the filters these have
    texts: Any  # of the filters
    first: _Numbers  # the place of each filter's first partial
    partials: _Numbers  # and their number
    partition: _Numbers  # of each partial, as a place in `partitions`
    regions: Any  # of each partial
    partitions: Any  # names
    configurators: Any  # the owner of each partition

    @property
    def rows_per_request(self) -> float:
        """How many partials a request has, on average."""
        weights = np.where(
            np.arange(len(self.partials)) < self.subscriptions,
            (1 - ADVERTISED) / self.subscriptions,
            ADVERTISED / (len(self.partials) - self.subscriptions),
        )
        return float((weights * self.partials).sum())


class _Requests(NamedTuple):
    """The requests of a file, by time of arrival."""

    record: _Numbers
    kind: _Numbers  # a place in _KINDS
    number: _Numbers  # counts the requests of a record
    filter: _Numbers
    host: _Numbers
    received: _Numbers
    failed: NDArray[np.bool_]

    def first(self, most: int) -> "_Requests":
        """The first ones."""
        return _Requests(
            self.record[:most],
            self.kind[:most],
            self.number[:most],
            self.filter[:most],
            self.host[:most],
            self.received[:most],
            self.failed[:most],
        )


def write_requests(
    folder: Path, origin: Origin, rows: int, files: int = 4, seed: int = 1
) -> list[Path]:
    """Write files with so many rows in all, and return their paths.

    There are so many files at least, and more if they would be larger than those of a service.
    """
    pool = _make_pool(origin)
    footer = encode_footer([origin.document]).entries
    folder.mkdir(parents=True, exist_ok=True)
    files = max(files, -(-rows // FILE_ROWS))
    sizes = [rows // files + (n < rows % files) for n in range(files)]
    begin = BEGAN
    found = []
    for number, size in enumerate(sizes):
        random = np.random.default_rng([seed, number])
        table, end = _make_table(pool, size, begin, number, random)
        stamp = datetime.fromtimestamp(begin / 1e6, UTC).strftime("%Y%m%dT%H%M%S")
        path = folder / f"{stamp}-bench-{number + 1}.parquet"
        with pq.ParquetWriter(path, REQUESTS, compression="zstd") as writer:
            writer.write_table(table, row_group_size=GROUP_ROWS)
            writer.add_key_value_metadata(footer)
        found.append(path)
        begin = end
    return found


def write_events(folder: Path, origin: Origin, weight: float = 10.0) -> Path:
    """Write the sampled events of a trace, each of which stands for several."""
    names = [attribute.name for attribute in origin.index.space.attributes]
    values = [
        msgspec.json.encode(dict(zip(names, event, strict=True))).decode()
        for event in origin.events
    ]
    count = len(values)
    columns = {
        "space": [origin.index.space.name] * count,
        "host": [f"h{1 + n % HOSTS}" for n in range(count)],
        "time_us": [BEGAN + n * 1_000 for n in range(count)],
        "values": values,
        "weight": [weight] * count,
    }
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.fromtimestamp(BEGAN / 1e6, UTC).strftime("%Y%m%dT%H%M%S")
    path = folder / f"{stamp}-bench-1.parquet"
    pq.write_table(pa.table(columns, schema=EVENTS), path, compression="zstd")
    return path


def _make_pool(origin: Origin) -> _Pool:
    subscribed = list(pooled(origin, advertised=False))
    everything = [*subscribed, *pooled(origin, advertised=True)]
    names = [str(PartitionName(NUMBER, VERSION, leaf)) for leaf in origin.map.leaves()]
    place = {name: n for n, name in enumerate(names)}
    partials = list(_partials(everything))
    count = np.array([len(each.partials) for each in everything])
    return _Pool(
        len(subscribed),
        pa.array([each.text for each in everything]),
        np.cumsum(count) - count,
        count,
        np.array([place[partition] for partition, _ in partials]),
        pa.array([regions for _, regions in partials], pa.list_(pa.string())),
        pa.array(names),
        pa.array([origin.owners[leaf] for leaf in origin.map.leaves()]),
    )


def _partials(filters: Sequence[PooledFilter]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for each in filters:
        yield from each.partials


def _make_table(
    pool: _Pool, size: int, begin: int, number: int, random: np.random.Generator
) -> tuple[Any, int]:
    """The rows of one file, and when the next one begins."""
    requests = _draw_requests(pool, size, begin, number, random)
    counts = pool.partials[requests.filter]
    last = int(np.searchsorted(np.cumsum(counts), size)) + 1
    requests = requests.first(last)
    counts = counts[:last]
    of = np.repeat(np.arange(last), counts)[:size]  # the request of each row
    within = np.arange(size) - (np.cumsum(counts) - counts)[of]
    partial = pool.first[requests.filter[of]] + within
    partition = pool.partition[partial]
    failed = requests.failed[of]
    kind = requests.kind[of]
    slices, sizes = _cut_slices(partition, failed, random)
    decided, pushed = _slice_times(slices, sizes, random)
    operations = _operations(slices, random)
    is_end = kind % 3 == _END
    queued = random.exponential(1_500.0, size).astype(np.int64)
    received = requests.received[of]
    done = received + 400 + queued + decided + pushed
    ids, targets = _ids(requests)
    columns = [
        ids.take(of),
        pa.array(_KINDS).take(kind),
        pa.array(["bench"]).take(np.zeros(size, np.int64)),
        pa.array([f"h{n + 1}" for n in range(HOSTS)]).take(requests.host[of]),
        pool.partitions.take(partition),
        pool.configurators.take(partition),
        pa.array(["sna"]).take(np.zeros(size, np.int64)),
        _regions(pool, partial, is_end),
        received,
        queued,
        decided,
        pushed,
        done,
        slices,
        sizes,
        np.where(is_end, 0, operations),
        operations // 4,
        np.where(is_end, operations, 0),
        np.where(failed, 0, 1 + sizes % 7),
        pa.array(["done", "failed"]).take(failed.astype(np.int64)),
        targets.take(of),
        pool.texts.take(requests.filter[of]),
    ]
    table = pa.table([pa.array(column) for column in columns], names=REQUESTS.names)
    return table.cast(REQUESTS), int(requests.received[-1]) + 1


def _draw_requests(
    pool: _Pool, size: int, begin: int, number: int, random: np.random.Generator
) -> _Requests:
    """More requests than so many rows need, by time of arrival."""
    count = int(size / pool.rows_per_request * _SPARE / (1 + CHANGES)) + 50
    duration = count * (1 + CHANGES + ENDS) / RATE * 1e6
    begins = random.uniform(0.0, duration, count)
    lives = random.exponential(duration / 4, count)
    advertised = random.random(count) < ADVERTISED
    subscriptions, publishers = pool.subscriptions, len(pool.partials) - pool.subscriptions

    def draw_filters() -> _Numbers:
        told = subscriptions + random.integers(0, publishers, count)
        return np.where(advertised, told, random.integers(0, subscriptions, count))

    first, second = draw_filters(), draw_filters()
    changes = random.random(count) < CHANGES
    ends = (random.random(count) < ENDS) & (begins + lives < duration)
    hosts = (HOSTS * random.random(count) ** 2).astype(np.int64)  # some have more than others
    parts = []
    for step, chosen, times, filters in (
        (_BEGIN, np.ones(count, np.bool_), begins, first),
        (_CHANGE, changes, begins + lives / 2, second),
        (_END, ends, begins + lives, np.where(changes, second, first)),
    ):
        places = np.flatnonzero(chosen & (times < duration))
        parts.append(
            (
                places + (number << 40),
                step + 3 * advertised[places],
                np.full(len(places), step + 1),
                filters[places],
                hosts[places],
                begin + times[places].astype(np.int64),
            )
        )
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[-1], kind="stable")
    record, kind, numbers, wanted, host, received = (column[order] for column in columns)
    failed = random.random(len(order)) < FAILED
    return _Requests(record, kind, numbers, wanted, host, received, failed)


def _cut_slices(
    partition: _Numbers, failed: NDArray[np.bool_], random: np.random.Generator
) -> tuple[_Numbers, _Numbers]:
    """The number and the size of each row's slice: neighbours of one partition share it.

    Rows that were refused before they were decided have none, and both are 0.
    """
    slices = np.zeros(len(partition), np.int64)
    sizes = np.zeros(len(partition), np.int64)
    there = np.flatnonzero(~failed)
    order = there[np.argsort(partition[there], kind="stable")]
    is_first = random.random(len(order)) < 1 / SLICE
    is_first[1:] |= partition[order][1:] != partition[order][:-1]
    is_first[:1] = True
    numbers = np.cumsum(is_first)
    slices[order] = numbers
    sizes[order] = np.bincount(numbers)[numbers]
    return slices, sizes


def _slice_times(
    slices: _Numbers, sizes: _Numbers, random: np.random.Generator
) -> tuple[_Numbers, _Numbers]:
    """How long the decision of each row's slice took, and its switches."""
    count = int(slices.max(initial=0)) + 1
    size_of = np.zeros(count, np.int64)
    size_of[slices] = sizes
    decided = (30 + WORK * size_of * random.lognormal(0.0, 0.3, count)).astype(np.int64)
    pushed = (2_500 * random.lognormal(0.0, 0.5, count)).astype(np.int64)
    decided[0] = pushed[0] = 0
    return decided[slices], pushed[slices]


def _operations(slices: _Numbers, random: np.random.Generator) -> _Numbers:
    """An equal share of the slice's flow operations for each row."""
    share = random.poisson(3.0, int(slices.max(initial=0)) + 1)
    share[0] = 0
    return share[slices].astype(np.int64)


def _regions(pool: _Pool, partial: _Numbers, is_end: NDArray[np.bool_]) -> Any:
    """The regions of each row; a removal does not say any."""
    none = pa.array([[]], pa.list_(pa.string()))
    known = pa.concat_arrays([pool.regions, none])
    return known.take(pa.array(np.where(is_end, len(pool.regions), partial)))


def _ids(requests: _Requests) -> tuple[Any, Any]:
    """The id of each request, and that of its record."""
    spread = (requests.record.astype(np.uint64) + np.uint64(1)) * np.uint64(_SPREAD)
    letters = np.where(requests.kind >= 3, f"a{NUMBER:x}-", f"s{NUMBER:x}-")
    targets = pc.binary_join_element_wise(
        pa.array(letters), pc.cast(pa.array(spread), pa.string()), ""
    )
    numbered = pc.binary_join_element_wise(
        targets, pc.cast(pa.array(requests.number), pa.string()), "."
    )
    return pc.if_else(pa.array(requests.number == 1), targets, numbered), targets
