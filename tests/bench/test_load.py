"""The load on the REST interface counts what it should, and costs what it must."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from bench.arrivals import arrival_times, continued, percentile, queued, summary
from bench.calls import CallFailed, Client
from bench.cpu import Cpu, kind_of
from bench.load import Load, LoadFailed
from bench.traffic import Traffic, batch, body, removal
from bench.workload import Workload, make_space
from dzflow.filters import parse_filter

Handle = Callable[[str, Any], tuple[int, Any]]
TIMING = {
    "indexed_ms": 1.0,
    "journaled_ms": 2.0,
    "queued_ms": 3.0,
    "decided_ms": 4.0,
    "pushed_ms": 5.0,
    "committed_ms": 6.0,
    "total_ms": 21.0,
}


class Records:
    """Answers as the service does, at once."""

    def __init__(self) -> None:
        self.active: set[str] = set()
        self.most = 0
        self.calls: list[tuple[str, int]] = []

    def __call__(self, path: str, asked: Any) -> tuple[int, Any]:
        self.calls.append((path, len(asked) if isinstance(asked, list) else 1))
        if path.startswith("/spaces"):
            return 201, asked
        if isinstance(asked, list):
            return 207, [self._one(path, each) | {"status": 201} for each in asked]
        return 201, self._one(path, asked)

    def _one(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        if path == "/unsubscribe":
            self.active.remove(asked["id"])
            return {"id": asked["id"], "state": "removed", "flow_ops": 1, "timing": TIMING}
        self.most += 1
        name = f"s1-{self.most}"
        if path == "/subscribe":
            self.active.add(name)
        return {"id": name, "state": "active", "flow_ops": 3, "timing": TIMING}


@asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[str]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                given = await reader.readexactly(length)
                status, answer = handle(head.split()[1], json.loads(given))
                sent = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(sent)))
                writer.write(sent)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def loaded(handle: Handle, work: Callable[[Load], Any]) -> Any:
    async def main() -> Any:
        traffic = Traffic("uniform", 8)
        async with asyncio.timeout(30), serving(handle) as url:
            return await work(Load(url, traffic))

    return uvloop.run(main())


def test_arrivals_keep_their_rate() -> None:
    assert arrival_times("uniform", 100, 0.05) == [0.0, 0.01, 0.02, 0.03, 0.04]
    poisson = arrival_times("poisson", 1_000, 10)
    assert len(poisson) == 10_000
    assert poisson == sorted(poisson)
    assert 9 < poisson[-1] < 11


def test_one_at_a_time_each_waits_for_those_before_it() -> None:
    assert list(queued([0.0, 1.0, 10.0], [3.0, 2.0, 1.0])) == [3.0, 4.0, 1.0]


def test_service_times_beyond_those_measured_are_drawn_from_them() -> None:
    drawn = continued([1.0, 2.0], 100)
    assert drawn[:2] == [1.0, 2.0]
    assert len(drawn) == 100
    assert set(drawn) == {1.0, 2.0}
    assert continued([1.0, 2.0, 3.0], 2) == [1.0, 2.0]


def test_percentiles_are_values_that_occurred() -> None:
    values = [n / 1_000 for n in range(1_000)]
    assert percentile(values, 0.5) == 0.5
    assert percentile(values, 0.999) == 0.999
    assert summary([])["p99_ms"] == 0.0


def test_what_is_sent_is_the_filter_of_the_workload() -> None:
    space = make_space("fields")
    for ask in Workload(space, "zipf").asks(50):
        sent = json.loads(body(ask))
        assert parse_filter(space, sent["filter"]) == ask.filter
        assert sent["host"] == ask.host
    assert json.loads(batch([removal("s1-1"), removal("s1-2")]))[1]["id"] == "s1-2"


def test_a_smaller_network_gets_all_of_the_load() -> None:
    traffic = Traffic("uniform", 8)
    publishers = {json.loads(sent)["host"] for sent in traffic.publishers}
    assert publishers == {f"h{n}" for n in range(1, 9)}
    subscribers = {json.loads(traffic.subscription())["host"] for _ in range(200)}
    assert subscribers == publishers


def test_batches_fill_then_begin_and_end_in_equal_numbers() -> None:
    records = Records()

    async def work(load: Load) -> tuple[Any, Any]:
        await load.prepare()
        filled = await load.fill(1_200)
        return filled, await load.arrive(arrival_times("uniform", 2_000, 0.2), "batch")

    filled, arrived = loaded(records, work)
    assert len(filled.latencies) == 1_200
    assert filled.flow_ops == 3_600
    assert len(arrived.latencies) == 400
    assert arrived.flow_ops == 200 * 3 + 200
    assert len(records.active) == 1_200
    assert ("/subscribe", 500) in records.calls
    assert arrived.stages_row() | {"seen_ms": 0} == TIMING | {"seen_ms": 0, "largest_gap_ms": 0.0}
    assert arrived.row()["refused"] == 0


def test_single_requests_are_a_call_each() -> None:
    records = Records()

    async def work(load: Load) -> Any:
        await load.fill(50)
        records.calls.clear()
        return await load.arrive(arrival_times("poisson", 500, 0.2), "single")

    assert len(loaded(records, work).latencies) == 100
    assert records.calls.count(("/subscribe", 1)) == 50
    assert records.calls.count(("/unsubscribe", 1)) == 50


def test_a_service_that_is_late_is_asked_for_more_when_nothing_is_left_to_end() -> None:
    async def work(load: Load) -> Any:
        return await load.arrive([0.0] * 6, "batch")

    assert len(loaded(Records(), work).latencies) == 6


def test_latency_counts_from_when_a_request_should_have_been_sent() -> None:
    async def work(load: Load) -> Any:
        # All were due half a second ago, as if nothing had gone out meanwhile.
        return await load.arrive([-0.5] * 10, "batch")

    async def filled(load: Load) -> Any:
        await load.fill(10)
        return await work(load)

    assert min(loaded(Records(), filled).latencies) >= 0.5


def test_saturation_keeps_calls_under_way() -> None:
    records = Records()

    async def work(load: Load) -> Any:
        await load.fill(4_000)
        return await load.saturate(0.2, "batch", size=100)

    measured = loaded(records, work)
    assert len(measured.latencies) > 100
    assert measured.rate > 0
    assert measured.flow_mods_per_s > 0


def test_what_is_refused_does_not_count_as_acknowledged() -> None:
    def refuse(_: str, asked: Any) -> tuple[int, Any]:
        if len(asked) == 1:
            return 429, {"type": "x", "title": "full", "status": 429, "detail": "the queue is full"}
        return 207, [{"status": 422, "detail": "no such host"} for _ in asked]

    async def filled(load: Load) -> Any:
        with pytest.raises(ExceptionGroup) as raised:
            await load.fill(2)
        assert raised.group_contains(LoadFailed, match="no such host")
        with pytest.raises(ExceptionGroup) as raised:
            await load.fill(1)
        assert raised.group_contains(LoadFailed, match="the queue is full")

    loaded(refuse, filled)


async def test_a_connection_that_is_closed_is_said() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(url, 1) as client:
            with pytest.raises(CallFailed, match="closed"):
                await client.call("GET", "/healthz")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("ray::ConfiguratorActor.run", "configurators"),
        ("ray::SouthboundActor", "southbound"),
        ("python -m api.server 5", "api"),
        ("python -m api.network_process 5", "network"),
        ("/usr/bin/etcd --data-dir x", "etcd"),
        ("raylet/raylet --store_socket_name", "ray"),
        ("sleep 5", "other"),
    ],
)
def test_processes_are_told_apart(arguments: str, kind: str) -> None:
    assert kind_of(arguments) == kind


def test_processor_time_of_this_process_is_the_load() -> None:
    cpu = Cpu()
    sum(n * n for n in range(3_000_000))
    assert cpu.spent()["load"] > 0
