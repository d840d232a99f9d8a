"""What users see: times that add up, regions in words, a stream that ends for slow readers."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configurators.state.spaces import UnknownSpace
from configurators.store.keys import BadRecordId
from configurators.streams.packing import pack_regions
from dispatcher.errors import Conflict, NotFound, TooManyRequests, problem_of
from dispatcher.reports import change_feed
from dispatcher.requests.routing import region_texts
from dispatcher.requests.timing import timing_of
from dispatcher.views import ChangeType
from dzflow.errors import BadInput, DzflowError
from dzflow.region import FULL, Region
from tests.dispatcher.support import TIMEOUT, specs, world
from tests.etcd import TestEtcd

seconds = st.floats(0, 100)


@given(seconds, seconds, seconds, seconds, seconds, seconds)
def test_the_parts_of_the_time_add_up_exactly(
    total: float, indexed: float, journaled: float, decided: float, pushed: float, committed: float
) -> None:
    t = timing_of(total, indexed, journaled, decided, pushed, committed)
    parts = (t.indexed_ms, t.journaled_ms, t.queued_ms, t.decided_ms, t.pushed_ms, t.committed_ms)
    assert sum(parts) == t.total_ms
    assert min(parts) >= 0
    assert t.total_ms == pytest.approx(total * 1000, abs=0.001)
    assert t.indexed_ms == pytest.approx(min(indexed, total) * 1000, abs=0.001)


@given(st.integers(0, FULL), st.integers(0, FULL))
def test_regions_are_written_as_they_are_read(bits: int, mask: int) -> None:
    region = Region(bits & mask, mask)
    assert region_texts(pack_regions([region, Region(0, 0)])) == [str(region), "*"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (NotFound("no"), 404, "not-found"),
        (UnknownSpace("no"), 404, "not-found"),
        (BadRecordId("no"), 404, "not-found"),
        (BadInput("no"), 422, "invalid"),
        (Conflict("no", "key-reused"), 409, "key-reused"),
        (TooManyRequests("no", 3.0), 429, "too-many"),
        (DzflowError("no"), 503, "unavailable"),
    ],
)
def test_errors_become_problems(error: DzflowError, status: int, kind: str) -> None:
    problem = problem_of(error, "s1-1")
    assert (problem.status, problem.type, problem.detail, problem.id) == (
        status, kind, "no", "s1-1"
    )  # fmt: skip
    assert (problem.retry_after is not None) == (status in (429, 503))


async def test_a_reader_that_is_too_slow_is_told_and_cut_off(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "_MOST", 250)
    types: tuple[ChangeType, ...] = ("record", "network")

    async with (
        world(etcd_server.access()) as w,
        w.dispatcher() as d,
        asyncio.timeout(TIMEOUT),
        aclosing(d.changes(types)) as slow,
        aclosing(d.changes(types)) as quick,
    ):
        assert (await anext(slow)).type == "network"
        assert (await anext(quick)).type == "network"

        async def read() -> None:
            active = 0
            async for change in quick:
                active += change.type == "record" and change.data.state == "active"
                if active == 300:
                    return

        reading = asyncio.create_task(read())
        for host in ("h1", "h2", "h3"):
            await d.begin("subscription", specs(100, host), wait=TIMEOUT)
        await reading
        assert [change.type async for change in slow] == ["lagged"]
