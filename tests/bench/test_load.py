"""The load generator measures latencies and rates as it should, and follows the workload."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from bench.load.arrivals import (
    arrival_times,
    extrapolate,
    latency_columns,
    percentile,
    queueing_latencies,
)
from bench.load.generator import LoadFailed, LoadGenerator
from bench.load.http_client import CallFailed, HttpClient
from bench.load.traffic import Traffic, batch_body, removal_body, request_body
from bench.processes.cpu import CpuMeter, kind_of
from bench.workload import Workload, make_space
from dzflow.filters import parse_filter
from tests.socket_server import SocketServer

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
    """A service that answers at once."""

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
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            given = await reader.readexactly(length)
            status, answer = handle(head.split()[1], json.loads(given))
            sent = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(sent)))
            writer.write(sent)

    async with SocketServer(talk) as server:
        yield server.url


@asynccontextmanager
async def loading(handle: Handle) -> AsyncIterator[LoadGenerator]:
    async with asyncio.timeout(30), serving(handle) as url:
        yield LoadGenerator(url, Traffic("uniform", 8))


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Load is generated on uvloop."""
    return "asyncio", {"loop_factory": uvloop.new_event_loop}


def test_arrivals_keep_their_rate() -> None:
    assert arrival_times("uniform", 100, 0.05) == [0.0, 0.01, 0.02, 0.03, 0.04]
    poisson = arrival_times("poisson", 1_000, 10)
    assert len(poisson) == 10_000
    assert poisson == sorted(poisson)
    assert 9 < poisson[-1] < 11


def test_a_request_waits_for_those_before_it() -> None:
    assert list(queueing_latencies([0.0, 1.0, 10.0], [3.0, 2.0, 1.0])) == [3.0, 4.0, 1.0]


def test_service_times_beyond_those_measured_are_drawn_from_them() -> None:
    drawn = extrapolate([1.0, 2.0], 100)
    assert drawn[:2] == [1.0, 2.0]
    assert len(drawn) == 100
    assert set(drawn) == {1.0, 2.0}
    assert extrapolate([1.0, 2.0, 3.0], 2) == [1.0, 2.0]


def test_percentiles_are_values_that_occurred() -> None:
    values = [n / 1_000 for n in range(1_000)]
    assert percentile(values, 0.5) == 0.5
    assert percentile(values, 0.999) == 0.999
    assert latency_columns([])["p99_ms"] == 0.0


def test_bodies_carry_the_filters_of_the_workload() -> None:
    space = make_space("fields")
    for subscription in Workload(space, "zipf").subscriptions(50):
        sent = json.loads(request_body(subscription))
        assert parse_filter(space, sent["filter"]) == subscription.filter
        assert sent["host"] == subscription.host
    assert json.loads(batch_body([removal_body("s1-1"), removal_body("s1-2")]))[1]["id"] == "s1-2"


def test_a_smaller_network_gets_all_of_the_load() -> None:
    traffic = Traffic("uniform", 8)
    publishers = {json.loads(sent)["host"] for sent in traffic.publishers}
    assert publishers == {f"h{n}" for n in range(1, 9)}
    subscribers = {json.loads(traffic.next_subscription())["host"] for _ in range(200)}
    assert subscribers == publishers


async def test_batches_fill_and_then_add_and_remove_in_equal_numbers() -> None:
    records = Records()
    async with loading(records) as load:
        await load.prepare()
        filled = await load.fill(1_200)
        arrived = await load.send_arrivals(arrival_times("uniform", 2_000, 0.2), "batch")
    assert len(filled.latencies) == 1_200
    assert filled.flow_ops == 3_600
    assert len(arrived.latencies) == 400
    assert arrived.flow_ops == 200 * 3 + 200
    assert len(records.active) == 1_200
    assert ("/subscribe", 500) in records.calls
    assert arrived.stage_columns() | {"seen_ms": 0} == TIMING | {
        "seen_ms": 0,
        "largest_gap_ms": 0.0,
    }
    assert arrived.columns()["refused"] == 0


async def test_each_single_request_is_one_call() -> None:
    records = Records()
    async with loading(records) as load:
        await load.fill(50)
        records.calls.clear()
        arrived = await load.send_arrivals(arrival_times("poisson", 500, 0.2), "single")
    assert len(arrived.latencies) == 100
    assert records.calls.count(("/subscribe", 1)) == 50
    assert records.calls.count(("/unsubscribe", 1)) == 50


async def test_without_active_subscriptions_all_requests_subscribe() -> None:
    async with loading(Records()) as load:
        arrived = await load.send_arrivals([0.0] * 6, "batch")
    assert len(arrived.latencies) == 6


async def test_arrivals_without_removals_all_subscribe() -> None:
    records = Records()
    async with loading(records) as load:
        await load.fill(50)
        records.calls.clear()
        arrived = await load.send_arrivals([0.0] * 40, "single", removals=False)
    assert len(arrived.latencies) == 40
    assert records.calls == [("/subscribe", 1)] * 40


async def test_latency_counts_from_when_a_request_should_have_been_sent() -> None:
    async with loading(Records()) as load:
        await load.fill(10)
        # All requests were due half a second ago, as if the load generator were late.
        arrived = await load.send_arrivals([-0.5] * 10, "batch")
    assert min(arrived.latencies) >= 0.5


async def test_saturation_keeps_calls_in_progress() -> None:
    async with loading(Records()) as load:
        await load.fill(4_000)
        measured = await load.saturate(1.0, "batch", size=100)
    assert len(measured.latencies) > 100
    assert measured.rate > 0
    assert measured.flow_ops > 0


async def test_a_refused_request_does_not_count_as_acknowledged() -> None:
    def refuse(_: str, asked: Any) -> tuple[int, Any]:
        if len(asked) == 1:
            return 429, {"type": "x", "title": "full", "status": 429, "detail": "the queue is full"}
        return 207, [{"status": 422, "detail": "no such host"} for _ in asked]

    async with loading(refuse) as load:
        with pytest.raises(ExceptionGroup) as raised:
            await load.fill(2)
        assert raised.group_contains(LoadFailed, match="no such host")
        with pytest.raises(ExceptionGroup) as raised:
            await load.fill(1)
        assert raised.group_contains(LoadFailed, match="the queue is full")


async def test_a_closed_connection_fails_the_call() -> None:
    async def hang_up(*_: object) -> None:
        pass

    async with SocketServer(hang_up) as server, HttpClient(server.url, 1) as client:
        with pytest.raises(CallFailed, match="closed"):
            await client.call("GET", "/healthz")


@pytest.mark.parametrize(
    ("command_line", "kind"),
    [
        ("ray::ConfiguratorActor.run", "configurators"),
        ("ray::SouthboundActor", "southbound"),
        ("python -m api.start.api_server 5", "api"),
        ("python -m api.start.network_process 5", "network"),
        ("/usr/bin/etcd --data-dir x", "etcd"),
        ("raylet/raylet --store_socket_name", "ray"),
        ("sleep 5", "other"),
    ],
)
def test_command_lines_tell_the_kind_of_a_process(command_line: str, kind: str) -> None:
    assert kind_of(command_line) == kind


def test_processor_time_of_this_process_counts_as_load() -> None:
    cpu = CpuMeter()
    sum(n * n for n in range(3_000_000))
    assert cpu.read()["load"] > 0
