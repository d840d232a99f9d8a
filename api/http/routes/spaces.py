"""Event spaces, and what filters come to in them."""

import msgspec

from api.http.endpoints import Call, Link, Operation, Reply, Shown, once
from api.http.models import ExplainIn, SchemaIn, SpaceName, SpaceOut, SpacesOut
from api.http.problems import ApiProblem
from dispatcher.views import Explanation, SpaceView


def space_out(view: SpaceView) -> SpaceOut:
    """A space as callers see it: the members of its schema stand beside the others."""
    return SpaceOut(
        name=view.name,
        number=view.number,
        version=view.version,
        versions=view.versions,
        prefix=view.prefix,
        trees=view.trees,
        partitions=view.partitions,
        changing=view.changing,
        attributes=view.schema["attributes"],
        index=view.schema["index"],
    )


async def _list(call: Call) -> Reply:
    return Reply(200, SpacesOut([space_out(view) for view in call.dispatcher.spaces()]))


async def _get(call: Call) -> Reply:
    name = call.path("name")
    for view in call.dispatcher.spaces():
        if view.name == name:
            return Reply(200, space_out(view))
    raise ApiProblem("not-found", f"there is no space {name[:64]!r}")


async def _put(call: Call) -> Reply:
    name = msgspec.convert({"name": call.path("name")}, _Named).name
    call.read(SchemaIn)
    known = any(view.name == name for view in call.dispatcher.spaces())
    view = await call.dispatcher.put_space(name, call.body)
    return Reply(200 if known else 201, space_out(view))


class _Named(msgspec.Struct, frozen=True):
    name: SpaceName


async def _delete(call: Call) -> Reply:
    view = await call.dispatcher.delete_space(call.path("name"))
    return Reply(200, space_out(view))


async def _explain(call: Call) -> Reply:
    asked = call.read(ExplainIn)
    if asked.host is not None:
        call.caller.must_act_for(asked.host)

    async def explain() -> Reply:
        found = await call.dispatcher.explain(asked.space, asked.filter, asked.host)
        return Reply(200, found)

    return await once(call, explain, keep=False)


_SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 1_000_000, "scale": "log"},
        {"name": "symbol", "type": "string"},
    ],
    "index": {"kind": "fields", "budget": 8, "shapes": 64},
}
_OWN = {"name": "$response.body#/name"}
_IN_SPACE = {"host": "h2", "space": "$response.body#/name", "filter": {}}
_IN_USE = (Link("subscribe", body=_IN_SPACE), Link("advertise", body={**_IN_SPACE, "ttl": 60}))
_ON_SPACE = (
    *(Link("getSpace", _OWN), Link("putSpace", _OWN), Link("deleteSpace", _OWN)),
    *_IN_USE,
)
_NAME = {"name": SpaceName}

OPERATIONS = (
    Operation(
        "GET",
        "/spaces",
        "listSpaces",
        "spaces",
        "List all spaces",
        _list,
        {
            200: Shown(
                SpacesOut,
                "All spaces.",
                (Link("getSpace", {"name": "$response.body#/items/0/name"}),),
            )
        },
    ),
    Operation(
        "GET",
        "/spaces/{name}",
        "getSpace",
        "spaces",
        "A space: its schema, and what publishers need to address events in it",
        _get,
        {200: Shown(SpaceOut, "As it is now.", _IN_USE)},
        (404,),
        parameters=_NAME,
    ),
    Operation(
        "PUT",
        "/spaces/{name}",
        "putSpace",
        "spaces",
        "Make a space, or change its schema while it is in use",
        _put,
        {
            200: Shown(SpaceOut, "Changed, or as it was before.", _ON_SPACE),
            201: Shown(SpaceOut, "Made.", _ON_SPACE),
        },
        (409, 502),
        body=SchemaIn,
        examples={"stocks": _SCHEMA},
        parameters=_NAME,
    ),
    Operation(
        "DELETE",
        "/spaces/{name}",
        "deleteSpace",
        "spaces",
        "Delete a space that nobody uses",
        _delete,
        {200: Shown(SpaceOut, "As it was.")},
        (404, 409),
        parameters=_NAME,
    ),
    Operation(
        "POST",
        "/explain",
        "explain",
        "spaces",
        "What a filter would come to; changes nothing",
        _explain,
        {200: Shown(Explanation, "Regions, in words, unwanted share, flows it would take.")},
        (404,),
        body=ExplainIn,
        examples={"one": {"space": "stocks", "filter": "price >= 420", "host": "h2"}},
    ),
)
