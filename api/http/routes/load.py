"""The load of partitions and configurators over time."""

from api.http.border.route import new_router
from api.http.dependencies import MonitorDep
from api.http.schema.msgspec_types import Json
from api.http.schema.openapi import answer
from api.http.schema.parameters import ResolutionQuery, SinceQuery
from monitor.load.rates import LoadPage

router = new_router("control")


@router.get("/load", responses={200: answer("The load; with `next` if there is more.")})
async def get_load(
    monitor: MonitorDep, since: SinceQuery = -60, resolution: ResolutionQuery = 1
) -> Json[LoadPage]:
    """The load of partitions and configurators over time; without parameters, of the last minute.

    The last five minutes are kept by second, the last hour by ten seconds, the last day by minute;
    less if there are many partitions. An answer has at most 300 intervals.
    """
    return monitor.load.page(since, resolution)
