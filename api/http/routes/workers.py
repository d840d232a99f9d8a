"""How many configurators and southbound processes there are, and should be."""

from fastapi import Response

from api.http.border.route import new_router
from api.http.dependencies import DispatcherDep, OnceDep
from api.http.schema.models import CountIn, SouthboundOut
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import Responses, answer, example, problems
from configurators.store.model import WorkerKind
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import ScaleView

router = new_router("control")

_ANSWERS: Responses = {
    200: answer("There is nothing to do."),
    202: answer("Workers are being started, or leave.", Json[ScaleView]),
    **problems(409),
}
_EXAMPLE = example({"count": 4})


@router.post("/configurators", responses=_ANSWERS, openapi_extra=_EXAMPLE)
async def scale_configurators(
    asked: JsonBody[CountIn], dispatcher: DispatcherDep, once: OnceDep, response: Response
) -> Json[ScaleView]:
    """Have so many configurators.

    New ones get partitions. Those with the highest numbers leave: each ends when it owns no
    partition any more.
    """
    return await _scale("configurators", asked.count, dispatcher, once, response)


@router.get("/southbound", responses={200: answer("All southbound processes.")})
async def list_southbound(dispatcher: DispatcherDep) -> Json[SouthboundOut]:
    """All southbound processes and their switches, and how many processes there should be."""
    wanted = dispatcher.scaling.view("southbound").wanted
    return SouthboundOut(dispatcher.status.southbound(), wanted)


@router.post("/southbound", responses=_ANSWERS, openapi_extra=_EXAMPLE)
async def scale_southbound(
    asked: JsonBody[CountIn], dispatcher: DispatcherDep, once: OnceDep, response: Response
) -> Json[ScaleView]:
    """Have so many southbound processes.

    A new one gets the switches that connect to it. Those with the highest numbers leave: each ends
    when all its switches are connected to another one.
    """
    return await _scale("southbound", asked.count, dispatcher, once, response)


async def _scale(
    kind: WorkerKind, count: int, dispatcher: Dispatcher, once: OnceDep, response: Response
) -> ScaleView:
    view = await once(lambda: dispatcher.scaling.scale(kind, count))
    response.status_code = 200 if view.done else 202
    return view
