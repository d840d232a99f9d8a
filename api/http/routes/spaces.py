"""Event spaces, and how filters are indexed in them."""

from fastapi import Response

from api.http.border.route import ApiRequest, new_router
from api.http.dependencies import CallerDep, DispatcherDep, OnceDep
from api.http.problems import ApiProblem, log
from api.http.schema.models import ExplainIn, SchemaIn, ShapesIn, SpaceOut, SpacesOut
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import answer, example, link, problems
from api.http.schema.parameters import NewSpacePath, SpacePath
from dispatcher.views import Explanation, ShapesUsage, ShapesView, SpaceView

router = new_router("spaces")


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
        authentication=view.authentication,
        key=view.key,
    )


_EXAMPLE = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 1_000_000, "scale": "log"},
        {"name": "symbol", "type": "string"},
    ],
    "index": {"kind": "fields", "budget": 8, "shapes": 64},
}
_IN_SPACE = {"host": "h2", "space": "$response.body#/name", "filter": {}}
_USE_LINKS = {
    **link("subscribe", _IN_SPACE),
    **link("advertise", {**_IN_SPACE, "ttl": 60}),
}
_SPACE_LINKS = {
    **link("getSpace", name="/name"),
    **link("putSpace", name="/name"),
    **link("deleteSpace", name="/name"),
    **_USE_LINKS,
}


@router.get(
    "/spaces",
    responses={200: answer("All spaces.", links=link("getSpace", name="/items/0/name"))},
)
async def list_spaces(dispatcher: DispatcherDep) -> Json[SpacesOut]:
    """All spaces."""
    return SpacesOut([space_out(view) for view in dispatcher.status.spaces()])


@router.get(
    "/spaces/{name}",
    responses={200: answer("The space.", links=_USE_LINKS), **problems(404)},
)
async def get_space(name: SpacePath, dispatcher: DispatcherDep) -> Json[SpaceOut]:
    """A space: its schema, and what publishers need to address events in it."""
    for view in dispatcher.status.spaces():
        if view.name == name:
            return space_out(view)
    raise ApiProblem("not-found", f"there is no space {name[:64]!r}")


@router.put(
    "/spaces/{name}",
    responses={
        200: answer("The space existed; its schema may have changed.", links=_SPACE_LINKS),
        201: answer("The space is new.", Json[SpaceOut], links=_SPACE_LINKS),
        **problems(409, 502),
    },
    openapi_extra=example(_EXAMPLE),
)
async def put_space(
    name: NewSpacePath,
    schema: JsonBody[SchemaIn],  # only checked: the dispatcher reads it as it came
    request: ApiRequest,
    response: Response,
) -> Json[SpaceOut]:
    """Make a space, or change its schema while it is in use."""
    known = any(view.name == name for view in request.dispatcher.status.spaces())
    view = await request.dispatcher.put_space(name, await request.json())
    if schema.authentication == "tagged" and not request.context.guard.on:
        text = "space %s asks for tags, but without tokens every caller can get every key"
        log.warning("%s; set tokens.operator and tokens.hosts", text % name)
    response.status_code = 200 if known else 201
    return space_out(view)


@router.get(
    "/spaces/{name}/shapes",
    responses={200: answer("The shapes that regions of the space can have."), **problems(404)},
)
async def get_shapes(name: SpacePath, dispatcher: DispatcherDep) -> Json[ShapesView]:
    """The dictionary of a space's index; it is empty for an index of the kind zorder."""
    return dispatcher.status.shapes(name)


@router.get(
    "/spaces/{name}/shapes/usage",
    responses={200: answer("Regions and unwanted share by shape."), **problems(404, 429)},
)
async def get_shape_usage(name: SpacePath, dispatcher: DispatcherDep) -> Json[ShapesUsage]:
    """How many active subscriptions use each shape, and the unwanted events it lets through.

    The shares are what the index expects if all events of the space are equally likely.
    """
    return await dispatcher.shape_usage(name)


@router.put(
    "/spaces/{name}/shapes",
    responses={
        200: answer("The space has these shapes, and its records were indexed again."),
        202: answer("New requests use the shapes; the others follow.", Json[ShapesView]),
        **problems(404, 409),
    },
    openapi_extra=example({"version": 0, "shapes": [[10, 0, 0], [6, 4, 0]]}),
)
async def put_shapes(
    name: SpacePath, given: JsonBody[ShapesIn], dispatcher: DispatcherDep, response: Response
) -> Json[ShapesView]:
    """Give the index of a space another dictionary of shapes, while it is in use.

    Subscriptions and advertisements are indexed again in the background, without a gap. `changing`
    is true until that is done.
    """
    view = await dispatcher.put_shapes(name, given.version, given.shapes)
    response.status_code = 202 if view.changing else 200
    return view


@router.delete(
    "/spaces/{name}",
    responses={200: answer("The space as it was."), **problems(404, 409)},
)
async def delete_space(name: SpacePath, dispatcher: DispatcherDep) -> Json[SpaceOut]:
    """Delete a space that has no subscriptions and advertisements."""
    return space_out(await dispatcher.delete_space(name))


@router.post(
    "/explain",
    responses={
        200: answer("Regions, cells in words, unwanted share, flows; how the event would travel."),
        **problems(404, 429),
    },
    openapi_extra=example(
        {
            "space": "stocks",
            "filter": "price >= 420",
            "event": {"price": 450, "volume": 10, "symbol": "ACME"},
            "host": "h2",
        }
    ),
)
async def explain(
    asked: JsonBody[ExplainIn], dispatcher: DispatcherDep, caller: CallerDep, once: OnceDep
) -> Json[Explanation]:
    """How a filter would be indexed, and which flows it would take; changes nothing.

    With `event`, also how this event would travel if `host` published it, hop by hop, by the tables
    that the control plane has computed. Where it goes tells what other hosts want: a host's token
    learns only whether it is let in.
    """
    if asked.host is not None:
        caller.must_act_for(asked.host)
    return await once(
        lambda: dispatcher.explain(
            asked.space,
            asked.filter,
            asked.host,
            caller.host or caller.name,
            event=asked.event,
            restricted=not caller.is_operator,
        ),
        keep=False,
    )
