"""Hosts, switches, links, trees, flow entries; configurators."""

from fastapi import Response

from api.http.border.route import new_router
from api.http.dependencies import DispatcherDep
from api.http.schema.models import (
    ConfiguratorsOut,
    FlowsOut,
    HostIn,
    HostsOut,
    LinkIn,
    SwitchesOut,
    SwitchIn,
)
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import answer, example, link, problems
from api.http.schema.parameters import (
    HostPath,
    LinkPath,
    NewHostPath,
    NewLinkPath,
    NewSwitchPath,
    SourceQuery,
    SwitchPath,
)
from dispatcher.views import HostView, LinkView, SwitchView, TopologyView
from sdn.network.switch_limits import limits_alone
from sdn.network.topology import Host

router = new_router()

_SWITCH_LINKS = link("listFlows", id="/id")
_HOST_LINKS = {**link("putHost", id="/id"), **link("deleteHost", id="/id")}


@router.get(
    "/hosts",
    tags=["network"],
    responses={200: answer("All hosts.", links=link("putHost", id="/items/0/id"))},
)
async def list_hosts(dispatcher: DispatcherDep) -> Json[HostsOut]:
    """All hosts, and the switch and port that each is connected to."""
    return HostsOut(dispatcher.hosts.views())


@router.put(
    "/hosts/{id}",
    tags=["network"],
    responses={
        200: answer("The host existed; it may have moved.", links=_HOST_LINKS),
        201: answer("The host is new.", Json[HostView], links=_HOST_LINKS),
        **problems(404, 409),
    },
    openapi_extra=example({"switch": "s1", "port": 3}),
)
async def put_host(
    id: NewHostPath, host: JsonBody[HostIn], dispatcher: DispatcherDep, response: Response
) -> Json[HostView]:
    """Add a host, or move it to another switch or port."""
    known = any(view.id == id for view in dispatcher.hosts.views())
    view = await dispatcher.hosts.put(Host(id, host.switch, host.port, host.mac, host.ipv6))
    response.status_code = 200 if known else 201
    return view


@router.delete(
    "/hosts/{id}",
    tags=["network"],
    responses={200: answer("The host as it was."), **problems(404, 409)},
)
async def delete_host(id: HostPath, dispatcher: DispatcherDep) -> Json[HostView]:
    """Remove a host that has no subscriptions and advertisements."""
    return await dispatcher.host_proposals.remove(id)


@router.get("/topology", tags=["network"], responses={200: answer("The network.")})
async def get_topology(dispatcher: DispatcherDep) -> Json[TopologyView]:
    """Switches, links, hosts and trees."""
    return dispatcher.status.topology()


@router.get(
    "/switches",
    tags=["network"],
    responses={200: answer("All switches.", links=link("listFlows", id="/items/0/id"))},
)
async def list_switches(dispatcher: DispatcherDep) -> Json[SwitchesOut]:
    """All switches, and whether each is connected."""
    return SwitchesOut(dispatcher.status.switches())


@router.put(
    "/switches/{id}",
    tags=["network"],
    responses={
        200: answer("The switch existed."),
        201: answer("The switch is new.", Json[SwitchView], links=_SWITCH_LINKS),
        **problems(409),
    },
    openapi_extra=example({"dpid": 7, "label": "rack 3, top", "rate": 45}),
)
async def put_switch(
    id: NewSwitchPath, switch: JsonBody[SwitchIn], dispatcher: DispatcherDep, response: Response
) -> Json[SwitchView]:
    """Add a switch to a discovered network before it connects, or change its label and limits.

    What is left out gets its default, but for `dpid`, which stays. `rate`, `window` and `capacity`
    hold at once, `timeout` and `echo_every` from the next connection on. 409 if the network was
    described at the first start, or if a connected switch would get another datapath id, or entries
    other tables.
    """
    parts, limits = dispatcher.network_parts, limits_alone(switch)
    view, new = await parts.put_switch(id, switch.dpid, limits, switch.label)
    response.status_code = 201 if new else 200
    return view


@router.delete(
    "/switches/{id}",
    tags=["network"],
    responses={200: answer("The switch as it was."), **problems(404, 409)},
)
async def delete_switch(id: SwitchPath, dispatcher: DispatcherDep) -> Json[SwitchView]:
    """Remove a lost switch and its links from a discovered network.

    409 while it is connected, hosts are declared there, or trees lead over it; the problem names
    all reasons. If it connects again, it joins again.
    """
    return await dispatcher.network_parts.remove_switch(id)


@router.put(
    "/links/{id}",
    tags=["network"],
    responses={
        200: answer("The link existed."),
        201: answer("The link is new.", Json[LinkView], links={}),
        **problems(404, 409),
    },
    openapi_extra=example({"lldp": False}),
)
async def put_link(
    id: NewLinkPath, link: JsonBody[LinkIn], dispatcher: DispatcherDep, response: Response
) -> Json[LinkView]:
    """Add a link to a discovered network that discovery cannot find, or change one.

    409 if the network was described at the first start.
    """
    view, new = await dispatcher.network_parts.put_link(id, probed=link.lldp)
    response.status_code = 201 if new else 200
    return view


@router.delete(
    "/links/{id}",
    tags=["network"],
    responses={
        200: answer("The link as it was."),
        202: answer("The link as it was; it goes when no tree uses it any more.", Json[LinkView]),
        **problems(404, 409),
    },
)
async def delete_link(
    id: LinkPath, dispatcher: DispatcherDep, response: Response
) -> Json[LinkView]:
    """Remove a lost link, or one that carries no LLDP, from a discovered network.

    409 while another one is not lost, or trees use it; the problem names all reasons.
    """
    view, gone = await dispatcher.network_parts.remove_link(id)
    response.status_code = 200 if gone else 202
    return view


@router.get(
    "/switches/{id}/flows",
    tags=["network"],
    responses={200: answer("The entries."), **problems(404)},
)
async def list_flows(
    id: SwitchPath, dispatcher: DispatcherDep, source: SourceQuery = "cp"
) -> Json[FlowsOut]:
    """The flow entries of a switch, as the control plane or as the switch has them."""
    return FlowsOut(id, source, await dispatcher.flows(id, source))


@router.get("/configurators", tags=["control"], responses={200: answer("All configurators.")})
async def list_configurators(dispatcher: DispatcherDep) -> Json[ConfiguratorsOut]:
    """All configurators and their load, and how many there should be."""
    wanted = dispatcher.scaling.view("configurators").wanted
    return ConfiguratorsOut(dispatcher.status.configurators(), wanted)
