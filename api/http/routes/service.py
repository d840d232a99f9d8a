"""Health, metrics, a stream of changes, reports, backup and restore."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, cast, get_args

from fastapi import Body, Response
from msgspec.structs import replace

from api.http.border.auth import Caller
from api.http.border.bodies import BYTES
from api.http.border.route import ApiRequest, new_router
from api.http.dependencies import DispatcherDep, OnceDep
from api.http.live_stream import EventStream
from api.http.metrics.registry import MEDIA_TYPE as METRICS_TYPE
from api.http.problems import ApiProblem
from api.http.routes.spaces import space_out
from api.http.schema.models import ReportedOut, ReportedSpace, ReportIn, ReportOut
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import answer, example
from api.http.schema.parameters import HostQuery, MostQuery, TypesQuery
from api.http.schema.service import HealthOut, ReadyOut
from dispatcher.views import Change, ChangeType, Compaction, Restored, SpaceView

router = new_router("service")

TYPES = tuple(name for name in get_args(ChangeType) if name not in ("skipped", "lagged"))
_DEFAULT_TYPES = tuple(name for name in TYPES if name != "load")  # which comes every second
_FOR_HOSTS = ("record", "space", "network")


@router.get("/healthz", responses={200: answer("It is.")})
async def is_alive() -> Json[HealthOut]:
    """Whether this process is alive."""
    return HealthOut()


@router.get(
    "/readyz",
    responses={
        200: answer("They can; `status` says whether without restrictions."),
        503: answer("They cannot; `reasons` tells operators why.", Json[ReadyOut]),
    },
)
async def is_ready(request: ApiRequest, response: Response) -> Json[ReadyOut]:
    """Whether requests can be served, and every part, switch or partition that is impaired.

    If the service has tokens, callers without an operator's token get numbers only.
    """
    details = request.caller.is_operator
    found = await request.context.readiness.read(request.dispatcher, details=details)
    if not found.ready:
        response.status_code = 503
        response.headers["Retry-After"] = "1"
    return found


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(request: ApiRequest) -> Response:
    """Metrics for Prometheus, in its text form."""
    return Response(request.context.metrics.text(), media_type=METRICS_TYPE)


@router.get(
    "/stream",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream(request: ApiRequest, types: TypesQuery = None, most: MostQuery = None) -> Response:
    """Everything that changes, as server-sent events; with the type `load` also the load.

    With `most`, records are sampled: an event `skipped` after each second in which there were more
    says how many `records` were not sent. A reader that is too slow gets `lagged` as the last
    event, and the stream ends.
    """
    caller, streams = request.caller, request.context.streams
    wanted = _wanted_types(types, caller)
    streams.check(caller.host)
    changes = request.dispatcher.changes(wanted, caller.host, most)
    return EventStream(streams, caller.host, _shown(changes))


def _wanted_types(named: str | None, caller: Caller) -> tuple[ChangeType, ...]:
    """The types of changes that the caller asks for and may see."""
    wanted = _DEFAULT_TYPES if named is None else tuple(named.split(","))
    for name in wanted:
        if name not in TYPES:
            text = f"there is no type {name[:40]!r}; there are {', '.join(TYPES)}"
            raise ApiProblem("invalid", text, "types")
    if caller.host is not None:
        for name in wanted:
            if named is not None and name not in _FOR_HOSTS:
                raise ApiProblem("forbidden", f"changes of type {name} are for operators", "types")
        wanted = tuple(name for name in wanted if name in _FOR_HOSTS)
    return cast("tuple[ChangeType, ...]", wanted)


async def _shown(changes: AsyncGenerator[Change, None]) -> AsyncGenerator[Change, None]:
    """Changes in the form that the other endpoints give."""
    async with aclosing(changes):
        async for change in changes:
            if isinstance(change.data, SpaceView):
                yield replace(change, data=space_out(change.data))
            else:
                yield change


@router.post(
    "/reports",
    status_code=202,
    responses={202: answer("How many samples were kept.")},
    openapi_extra=example(
        {
            "host": "h2",
            "counters": {"stocks": {"received": 120, "matched": 117}},
            "events": [
                {
                    "space": "stocks",
                    "time_us": 1_763_289_600_000_000,
                    "values": {"price": 421.5},
                    "weight": 50.0,
                },
            ],
        }
    ),
)
async def report(
    told: JsonBody[ReportIn], request: ApiRequest, dispatcher: DispatcherDep, once: OnceDep
) -> Json[ReportOut]:
    """The counters of an application, and a sample of the events that it published."""
    request.caller.must_act_for(told.host)

    async def count() -> ReportOut:
        # Reports on spaces that were deleted are of no use any more.
        spaces = {view.name for view in dispatcher.status.spaces()}
        counters = {space: counts for space, counts in told.counters.items() if space in spaces}
        request.context.metrics.report(told.host, counters)
        samples = [event for event in told.events if event.space in spaces]
        return ReportOut(dispatcher.sample_events(told.host, samples))

    return await once(count)


@router.get("/reports", responses={200: answer("The sums, by space.")})
async def get_reports(
    request: ApiRequest, dispatcher: DispatcherDep, host: HostQuery = None
) -> Json[ReportedOut]:
    """What applications have counted and reported to this API process, since it started.

    With `host`, those of one host. A host's token gets its own.
    """
    metrics, known = request.context.metrics, {view.name for view in dispatcher.status.spaces()}
    if request.caller.host is not None:
        host = host or request.caller.host
        request.caller.must_act_for(host)
    found, last = (
        (metrics.reports.by_space(), None) if host is None else metrics.reports.of_host(host)
    )
    return ReportedOut(
        dispatcher.id,
        metrics.since,
        [ReportedSpace(space, found[space]) for space in sorted(found) if space in known],
        host,
        last,
    )


@router.get(
    "/backup",
    response_class=Response,
    responses={200: {"content": {BYTES: {"schema": {"type": "string"}}}}},
)
async def backup(dispatcher: DispatcherDep) -> Response:
    """The state of the control plane, as a file."""
    headers = {"Content-Disposition": 'attachment; filename="dzflow.backup"'}
    return Response(await dispatcher.backup(), 200, headers, BYTES)


@router.post(
    "/restore",
    responses={200: answer("What was restored.")},
)
async def restore(
    content: Annotated[bytes, Body(media_type=BYTES)], dispatcher: DispatcherDep, once: OnceDep
) -> Json[Restored]:
    """Restore a backup into a control plane that has no state."""
    return await once(lambda: dispatcher.restore(content))


@router.post(
    "/etcd/compact",
    responses={200: answer("The size of the database before and after.")},
)
async def compact(dispatcher: DispatcherDep, once: OnceDep) -> Json[Compaction]:
    """Compact and defragment etcd's database now; the service does so by itself when it pays.

    If the database has reached its quota, finished records are removed first. Every member of etcd
    is blocked for a while, one after the other.
    """
    return await once(dispatcher.compact_store)
