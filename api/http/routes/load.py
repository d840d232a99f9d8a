"""The load over time, and the history of workers and partitions."""

from api.http.border.route import new_router
from api.http.dependencies import MonitorDep
from api.http.schema.msgspec_types import Json
from api.http.schema.openapi import answer
from api.http.schema.parameters import HistorySinceQuery, ResolutionQuery, SinceQuery
from monitor.history.event import HistoryPage
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


@router.get("/history", responses={200: answer("Events; with `next` if there is more.")})
async def get_history(monitor: MonitorDep, since: HistorySinceQuery = 0) -> Json[HistoryPage]:
    """What happened to workers and partitions, since this API process has started.

    Moves, take-overs, workers that came and went, plans, switches that were lost, and runs of the
    scheduled job. An answer has at most 500 events, the oldest first.
    """
    return monitor.history.page(since)
