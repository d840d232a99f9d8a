"""Health, metrics, changes as they happen, reports, backup and restore."""

from collections.abc import AsyncIterator
from typing import Any, cast, get_args

from msgspec.structs import replace
from starlette.responses import Response

from api.http.auth import Caller
from api.http.endpoints import BYTES, Call, Operation, Reply, Shown, once
from api.http.live_stream import EventStream
from api.http.metrics import MEDIA_TYPE as METRICS_TYPE
from api.http.models import (
    HealthOut,
    ReadyOut,
    ReportIn,
    ReportOut,
    StreamQuery,
    given,
)
from api.http.problems import ApiProblem
from api.http.routes.spaces import space_out
from dispatcher.views import Change, ChangeType, RecordView, Restored, SpaceView

TYPES = tuple(name for name in get_args(ChangeType) if name != "lagged")
_FOR_HOSTS = ("record", "space", "network")


async def _healthz(_call: Call) -> Reply:
    return Reply(200, HealthOut())


async def _readyz(call: Call) -> Reply:
    health = call.dispatcher.health()
    more = await call.context.more_parts()
    reasons = health.reasons + [f"{part.name}: {part.reason}" for part in more if not part.ok]
    parts = [
        health.etcd,
        *health.dispatchers,
        *health.southbound,
        *health.configurators,
        *more,
    ]
    ready = health.ready and not reasons
    headers = {} if ready else {"Retry-After": "1"}
    told = ReadyOut(
        ready,
        reasons,
        parts,
        health.switches_up,
        health.switches,
        health.partitions_ready,
        health.partitions,
    )
    return Reply(200 if ready else 503, told, headers)


async def _metrics(call: Call) -> Response:
    return Response(call.context.metrics.text(), media_type=METRICS_TYPE)


async def _stream(call: Call) -> Response:
    query: StreamQuery = call.query
    named = given(query.types)
    wanted = TYPES if named is None else tuple(named.split(","))
    for name in wanted:
        if name not in TYPES:
            text = f"there is no type {name[:40]!r}; there are {', '.join(TYPES)}"
            raise ApiProblem("invalid", text, "types")
    if call.caller.host is not None:
        for name in wanted:
            if named is not None and name not in _FOR_HOSTS:
                raise ApiProblem("forbidden", f"changes of type {name} are for operators", "types")
        wanted = tuple(name for name in wanted if name in _FOR_HOSTS)
    call.context.streams.check(call.caller.host)
    changes = _seen(call.dispatcher.changes(cast("tuple[ChangeType, ...]", wanted)), call.caller)
    return EventStream(call.context.streams, call.caller.host, changes)


async def _seen(changes: AsyncIterator[Change], caller: Caller) -> AsyncIterator[Change]:
    """The changes that the caller may see, in the form in which it sees things."""
    async for change in changes:
        data = change.data
        if isinstance(data, RecordView) and not caller.may_act_for(data.host):
            continue
        if isinstance(data, SpaceView):
            change = replace(change, data=space_out(data))
        yield change


async def _reports(call: Call) -> Reply:
    report = call.read(ReportIn)
    call.caller.must_act_for(report.host)

    async def take() -> Reply:
        # What is told of spaces that are gone is of no use any more.
        spaces = {view.name for view in call.dispatcher.spaces()}
        counters = {space: counts for space, counts in report.counters.items() if space in spaces}
        call.context.metrics.report(counters)
        samples = [e for e in report.events if e.space in spaces]
        return Reply(202, ReportOut(call.dispatcher.sample_events(report.host, samples)))

    return await once(call, take)


async def _backup(call: Call) -> Response:
    headers = {"Content-Disposition": 'attachment; filename="dzflow.backup"'}
    return Response(await call.dispatcher.backup(), 200, headers, BYTES)


async def _restore(call: Call) -> Reply:
    async def restore() -> Reply:
        return Reply(200, await call.dispatcher.restore(call.raw))

    return await once(call, restore)


_REPORT: dict[str, Any] = {
    "host": "h2",
    "counters": {"stocks": {"received": 120, "matched": 117}},
    "events": [
        {"space": "stocks", "time_us": 1_763_289_600_000_000, "values": {"price": 421.5}},
    ],
}

OPERATIONS = (
    Operation(
        "GET",
        "/healthz",
        "isAlive",
        "service",
        "Whether this process is alive",
        _healthz,
        {200: Shown(HealthOut, "It is.")},
    ),
    Operation(
        "GET",
        "/readyz",
        "isReady",
        "service",
        "Whether requests can be served, and each part that this depends on",
        _readyz,
        {200: Shown(ReadyOut, "They can."), 503: Shown(ReadyOut, "They cannot; it says why.")},
    ),
    Operation(
        "GET",
        "/metrics",
        "getMetrics",
        "service",
        "Metrics for Prometheus",
        _metrics,
        {200: Shown(None, "In its text form.", media="text/plain")},
    ),
    Operation(
        "GET",
        "/stream",
        "stream",
        "service",
        "Everything that changes, as server-sent events; a reader that is too slow is told"
        " `lagged`, and the stream ends",
        _stream,
        {200: Shown(None, "Goes on until one side ends it.", media="text/event-stream")},
        query=StreamQuery,
    ),
    Operation(
        "POST",
        "/reports",
        "report",
        "service",
        "What an application has counted, and a sample of the events it sent",
        _reports,
        {202: Shown(ReportOut, "How much was taken.")},
        body=ReportIn,
        examples={"one": _REPORT},
    ),
    Operation(
        "GET",
        "/backup",
        "backup",
        "service",
        "The state of the control plane, as a file",
        _backup,
        {200: Shown(None, "The file.", media=BYTES)},
    ),
    Operation(
        "POST",
        "/restore",
        "restore",
        "service",
        "Bring the state of a backup into a control plane that has none",
        _restore,
        {200: Shown(Restored, "What was restored.")},
        (409,),
        body=bytes,
        media=BYTES,
    ),
)
