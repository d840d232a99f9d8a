"""Hosts that were heard in the network: accept or reject them."""

from fastapi import Response

from api.http.border.route import new_router
from api.http.dependencies import DispatcherDep, OnceDep
from api.http.schema.models import AcceptIn, ProposalsOut
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import answer, example, link, problems
from api.http.schema.parameters import HostPath
from dispatcher.views import HostView, ProposalView

router = new_router("network")


@router.get(
    "/host-proposals",
    responses={
        200: answer("All of them.", links=link("acceptHost", id="/items/0/id")),
    },
)
async def list_proposals(dispatcher: DispatcherDep) -> Json[ProposalsOut]:
    """Hosts that were heard at free ports; none with `discovery.hosts = "declared"`."""
    proposals = dispatcher.host_proposals
    return ProposalsOut(proposals.mode, proposals.views())


@router.post(
    "/host-proposals/{id}/accept",
    responses={
        200: answer("It had joined already.", Json[HostView]),
        201: answer("The host is new.", Json[HostView]),
        **problems(404, 409),
    },
    openapi_extra=example({"id": "h7", "switch": "s1", "port": 3}),
)
async def accept_host(
    id: HostPath,
    asked: JsonBody[AcceptIn],
    dispatcher: DispatcherDep,
    once: OnceDep,
    response: Response,
) -> Json[HostView]:
    """Have a host join that is proposed, or was rejected; then it is as if it was declared.

    Say where it was when you decided: if it is elsewhere by now, it is refused (409), because it
    may be another one that pretends to be it.
    """
    at = None if asked.switch is None or asked.port is None else (asked.switch, asked.port)
    view, new = await once(lambda: dispatcher.host_proposals.accept(id, asked.id, at))
    response.status_code = 201 if new else 200
    return view


@router.post(
    "/host-proposals/{id}/reject",
    responses={200: answer("The host that is rejected."), **problems(404)},
)
async def reject_host(id: HostPath, dispatcher: DispatcherDep, once: OnceDep) -> Json[ProposalView]:
    """Reject a host that is proposed: it does not join by itself, unless it is accepted later."""
    return await once(lambda: dispatcher.host_proposals.reject(id))
