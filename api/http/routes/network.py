"""Hosts, switches, links, trees, flow entries; partitions and configurators."""

import msgspec

from api.http.endpoints import Call, Link, Operation, Reply, Shown
from api.http.models import (
    ConfiguratorsOut,
    FlowQuery,
    FlowsOut,
    HostId,
    HostIn,
    HostsOut,
    PartitionsOut,
    SwitchesOut,
    SwitchId,
)
from dispatcher.views import HostView, TopologyView
from sdn.topology import Host


async def _hosts(call: Call) -> Reply:
    return Reply(200, HostsOut(call.dispatcher.hosts()))


async def _put_host(call: Call) -> Reply:
    name = msgspec.convert({"id": call.path("id")}, _Named).id
    given = call.read(HostIn)
    known = any(view.id == name for view in call.dispatcher.hosts())
    host = Host(name, given.switch, given.port, given.mac, given.ipv6)
    return Reply(200 if known else 201, await call.dispatcher.put_host(host))


class _Named(msgspec.Struct, frozen=True):
    id: HostId


async def _delete_host(call: Call) -> Reply:
    return Reply(200, await call.dispatcher.delete_host(call.path("id")))


async def _topology(call: Call) -> Reply:
    return Reply(200, call.dispatcher.topology())


async def _switches(call: Call) -> Reply:
    return Reply(200, SwitchesOut(call.dispatcher.switches()))


async def _flows(call: Call) -> Reply:
    switch, source = call.path("id"), call.query.source
    found = await call.dispatcher.flows(switch, source)
    return Reply(200, FlowsOut(switch, source, found))


async def _partitions(call: Call) -> Reply:
    return Reply(200, PartitionsOut(call.dispatcher.partitions()))


async def _configurators(call: Call) -> Reply:
    return Reply(200, ConfiguratorsOut(call.dispatcher.configurators()))


_OWN = {"id": "$response.body#/id"}
_ON_HOST = (Link("putHost", _OWN), Link("deleteHost", _OWN))

OPERATIONS = (
    Operation(
        "GET",
        "/hosts",
        "listHosts",
        "network",
        "List all hosts and where they hang",
        _hosts,
        {
            200: Shown(
                HostsOut, "All hosts.", (Link("putHost", {"id": "$response.body#/items/0/id"}),)
            )
        },
    ),
    Operation(
        "PUT",
        "/hosts/{id}",
        "putHost",
        "network",
        "Say where a host hangs; it may be new or have moved",
        _put_host,
        {
            200: Shown(HostView, "Moved, or as it was before.", _ON_HOST),
            201: Shown(HostView, "New.", _ON_HOST),
        },
        (404, 409),
        body=HostIn,
        examples={"one": {"switch": "s1", "port": 3}},
        parameters={"id": HostId},
    ),
    Operation(
        "DELETE",
        "/hosts/{id}",
        "deleteHost",
        "network",
        "Forget a host that has no subscriptions and advertisements",
        _delete_host,
        {200: Shown(HostView, "Where it hung.")},
        (404, 409),
        parameters={"id": HostId},
    ),
    Operation(
        "GET",
        "/topology",
        "getTopology",
        "network",
        "Switches, links, hosts and trees",
        _topology,
        {200: Shown(TopologyView, "The network.")},
    ),
    Operation(
        "GET",
        "/switches",
        "listSwitches",
        "network",
        "List all switches",
        _switches,
        {
            200: Shown(
                SwitchesOut,
                "All switches.",
                (Link("listFlows", {"id": "$response.body#/items/0/id"}),),
            )
        },
    ),
    Operation(
        "GET",
        "/switches/{id}/flows",
        "listFlows",
        "network",
        "The entries of a switch, as the control plane or as the switch has them",
        _flows,
        {200: Shown(FlowsOut, "The entries.")},
        (404,),
        query=FlowQuery,
        parameters={"id": SwitchId},
    ),
    Operation(
        "GET",
        "/partitions",
        "listPartitions",
        "control",
        "List all partitions, their owners and load",
        _partitions,
        {200: Shown(PartitionsOut, "All partitions.")},
    ),
    Operation(
        "GET",
        "/configurators",
        "listConfigurators",
        "control",
        "List all configurators and their load",
        _configurators,
        {200: Shown(ConfiguratorsOut, "All configurators.")},
    ),
)
