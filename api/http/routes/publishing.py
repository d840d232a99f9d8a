"""Publishing: one event in the name of an emulated host, to try things out."""

from collections.abc import Mapping
from ipaddress import IPv6Address

from api.http.border.route import ApiRequest, new_router
from api.http.dependencies import DispatcherDep, OnceDep
from api.http.problems import ApiProblem
from api.http.schema.models import PublishedOut, PublishIn
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import answer, example, problems
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Conflict, NotFound, Unavailable
from dzflow.address import read
from dzflow.sdk.errors import EventTooLarge, Unreachable
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.links import EmulatedLink

router = new_router("network")

_ids = datagrams.EventIds()


@router.post(
    "/publish",
    status_code=202,
    responses={202: answer("It was sent; delivery is at most once."), **problems(404, 409, 429)},
    openapi_extra=example(
        {
            "host": "h1",
            "space": "stocks",
            "event": {"price": 450, "volume": 10, "symbol": "ACME"},
        }
    ),
)
async def publish(
    asked: JsonBody[PublishIn], request: ApiRequest, dispatcher: DispatcherDep, once: OnceDep
) -> Json[PublishedOut]:
    """Publish an event in the name of a host of the emulated network, to try things out.

    The event must lie within the host's active advertisements. Each call counts as a request of the
    host; applications that publish use the SDK, which sends events without asking the service. Real
    hosts, also those of the Open vSwitch lab, publish by themselves: 409.
    """
    request.caller.must_act_for(asked.host)
    return await once(lambda: _publish(asked, request, dispatcher))


async def _publish(asked: PublishIn, request: ApiRequest, dispatcher: Dispatcher) -> PublishedOut:
    endpoint = _endpoint(dispatcher, asked.host)
    if dispatcher.status.space(asked.space).authentication != "none":
        text = f"events of space {asked.space!r} carry tags, for which only hosts have the keys"
        raise Conflict(f"{text}: publish on the host, with the SDK or dzflow publish")
    caller = request.caller
    found = await dispatcher.explain(
        asked.space, None, asked.host, caller.host or caller.name, event=asked.event
    )
    path = found.event
    assert path is not None
    if not path.admitted:
        raise Conflict(f"the event was not sent: {path.reason}; advertise it first")
    address = int(IPv6Address(path.address))
    event_id = _send(endpoint, address, asked.event)
    request.context.metrics.report(asked.host, {asked.space: {"published": 1}})
    return PublishedOut(str(event_id), path.address, path.tree)


def _endpoint(dispatcher: Dispatcher, name: str) -> str:
    """Where an emulated host takes events; Conflict for other hosts."""
    host = next((view for view in dispatcher.hosts.views() if view.id == name), None)
    if host is None:
        raise NotFound(f"there is no host {name[:64]!r}; GET /hosts lists all there are")
    if host.wire is None:
        text = f"host {name} is not an emulated one, so the service cannot publish in its name"
        raise Conflict(
            f"{text}: publish on the host, with the SDK or dzflow publish (in the Open vSwitch lab:"
            f" dzflow lab exec {name} -- dzflow publish …)"
        )
    return host.wire


def _send(endpoint: str, address: int, event: Mapping[str, object]) -> int:
    """Send an event into the network, and to the applications of its host; returns its id."""
    scope = read(address, address >> 112).scope
    event_id = _ids.next(scope.space, scope.version)
    try:
        payload = datagrams.encode(event_id, event)
    except EventTooLarge as error:
        raise ApiProblem("too-large", str(error), "event") from None
    try:
        link = EmulatedLink(endpoint)
        try:
            link.send(address, payload)
            link.copy(datagrams.copy(payload))
        finally:
            link.close()
    except (Unreachable, OSError) as error:
        raise Unavailable(f"the emulated network does not take the event: {error}", 1.0) from None
    return event_id
