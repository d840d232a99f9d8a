"""Keys of spaces whose events carry tags: for publishers, for receivers, and new ones."""

from fastapi import Response

from api.http.border.route import new_router
from api.http.dependencies import CallerDep, DispatcherDep, OnceDep
from api.http.routes.spaces import space_out
from api.http.schema.models import NewKeyIn, SpaceOut
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import answer, example, problems
from api.http.schema.parameters import AfterQuery, LimitQuery, RecordPath, SpacePath
from dispatcher.views import Publishers, PublishingKey, ReceivingKeys

router = new_router("event keys")

_SECRET = {"Cache-Control": "no-store"}


@router.get(
    "/advertisements/{id}/key",
    responses={200: answer("The key, and a stream of the caller's own."), **problems(404, 409)},
)
async def get_publishing_key(
    id: RecordPath, dispatcher: DispatcherDep, caller: CallerDep, response: Response
) -> Json[PublishingKey]:
    """The key with which the host of an active advertisement tags its events."""
    record = await dispatcher.record(id, "advertisement")
    caller.must_act_for(record.host, "id")
    response.headers.update(_SECRET)
    return await dispatcher.event_keys.publishing_key(id)


@router.get(
    "/subscriptions/{id}/keys",
    responses={200: answer("All keys that are valid."), **problems(404, 409)},
)
async def get_receiving_keys(
    id: RecordPath, dispatcher: DispatcherDep, caller: CallerDep, response: Response
) -> Json[ReceivingKeys]:
    """The keys with which the host of an active subscription checks events."""
    record = await dispatcher.record(id, "subscription")
    caller.must_act_for(record.host, "id")
    response.headers.update(_SECRET)
    return await dispatcher.event_keys.receiving_keys(id)


@router.get(
    "/subscriptions/{id}/publishers",
    responses={200: answer("A page."), **problems(404, 409)},
)
async def list_publishers(
    id: RecordPath,
    dispatcher: DispatcherDep,
    caller: CallerDep,
    limit: LimitQuery = 100,
    after: AfterQuery = None,
) -> Json[Publishers]:
    """What hosts advertise in the space of an active subscription, page by page."""
    record = await dispatcher.record(id, "subscription")
    caller.must_act_for(record.host, "id")
    return await dispatcher.event_keys.publishers(id, limit=limit, after=after)


@router.post(
    "/spaces/{name}/key",
    responses={200: answer("The space, with the number of its new key."), **problems(404, 409)},
    openapi_extra=example({"grace": 120}),
)
async def replace_key(
    name: SpacePath, asked: JsonBody[NewKeyIn], dispatcher: DispatcherDep, once: OnceDep
) -> Json[SpaceOut]:
    """Make a new key for a space; publishers and receivers are told of it at once."""
    return await once(lambda: _replaced(name, asked.grace, dispatcher))


async def _replaced(name: str, grace: float, dispatcher: DispatcherDep) -> SpaceOut:
    return space_out(await dispatcher.replace_key(name, grace))
