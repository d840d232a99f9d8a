"""Publishing: one event in the name of an emulated host or one of the lab, to try things out."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
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
from dzflow.sdk.errors import EventTooLarge, NoInterface, Unreachable
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.links import EmulatedLink, Link, MulticastLink
from sdn.lab import HOST_INTERFACE, call_in_host
from sdn.lab.errors import LabError, LabUnavailable, NoLab, UnknownLabHost

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
    """Publish an event in the name of a host of the emulated network or the lab, to try things out.

    The event must lie within the host's active advertisements. Each call counts as a request of the
    host; applications that publish use the SDK, which sends events without asking the service.
    Hosts of other networks publish by themselves, and so do those of an emulated network or an Open
    vSwitch lab that runs on another machine than the API: 409.
    """
    request.caller.must_act_for(asked.host)
    return await once(lambda: _publish(asked, request, dispatcher))


async def _publish(asked: PublishIn, request: ApiRequest, dispatcher: Dispatcher) -> PublishedOut:
    lab = request.context.settings.lab
    host = next((view for view in dispatcher.hosts.views() if view.id == asked.host), None)
    if host is None:
        raise NotFound(f"there is no host {asked.host[:64]!r}; GET /hosts lists all there are")
    if host.wire is None and not lab:
        raise _by_itself(host.id, "it is neither emulated nor in a lab of this service")
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
    event_id, payload = _encode(address, asked.event)
    try:
        if host.wire is not None:
            link = EmulatedLink(host.wire)
            _send(link, address, payload)
            # The kernel tells the fate of the first datagram with the second one.
            if link.unanswered:
                why = f"nothing answers at its endpoint {host.wire}; its network is on another"
                raise _by_itself(host.id, f"{why} machine, in another pod, or not running")
        else:
            await asyncio.to_thread(_send_in_lab, lab, host.id, address, payload)
    except (LabUnavailable, NoLab, UnknownLabHost) as error:
        raise _by_itself(host.id, str(error)) from None
    except (Unreachable, NoInterface, LabError, OSError) as error:
        raise Unavailable(f"the network does not take the event: {error}", 1.0) from None
    request.context.metrics.report(asked.host, {asked.space: {"published": 1}})
    return PublishedOut(str(event_id), path.address, path.tree)


def _by_itself(host: str, why: str) -> Conflict:
    """The problem with a host that this process cannot publish for."""
    return Conflict(
        f"the service cannot publish in the name of host {host}: {why}; publish on the host, with"
        f" the SDK or dzflow publish (in the Open vSwitch lab: dzflow lab exec {host} --"
        " dzflow publish …)"
    )


def _encode(address: int, event: Mapping[str, object]) -> tuple[int, bytes]:
    """A new id for an event, and its payload."""
    scope = read(address, address >> 112).scope
    event_id = _ids.next(scope.space, scope.version)
    try:
        return event_id, datagrams.encode(event_id, event)
    except EventTooLarge as error:
        raise ApiProblem("too-large", str(error), "event") from None


def _send_in_lab(lab: str, host: str, address: int, payload: bytes) -> None:
    """Send an event from inside a host of the lab, as an application there does."""
    call_in_host(lab, host, lambda: _send(MulticastLink(HOST_INTERFACE), address, payload))


def _send(link: Link, address: int, payload: bytes) -> None:
    """Send an event into the network, and to the applications of its host; then close the link."""
    with closing(link):
        link.send(address, payload)
        link.copy(datagrams.copy(payload))
