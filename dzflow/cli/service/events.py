"""`dzflow publish`, `listen`, and the commands that create and end single records."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service.client import (
    AsJson,
    Filter,
    Host,
    Interface,
    ServiceOptions,
    Space,
    interruptible,
)
from dzflow.cli.tables import json_line, plain
from dzflow.errors import BadInput
from dzflow.text import printable

if TYPE_CHECKING:
    from dzflow.sdk import Advertisement, ControlPlane
    from dzflow.sdk.rest.api_protocol import Kind

# An event may still be in flight when its advertisement ends: the switches would drop it.
_IN_FLIGHT = 0.25  # seconds


class BadEvent(BadInput):
    """An event is not a JSON object."""


@with_option_groups
def publish(
    *,
    event: Annotated[str, typer.Argument(help="The event as JSON; - reads one event per line.")],
    host: Host,
    space: Space,
    service: ServiceOptions,
    interface: Interface = None,
) -> None:
    """Publish events. Events outside the host's advertisements are advertised temporarily."""

    with (
        interruptible(),
        service.control_plane(host, interface) as control_plane,
    ):
        count = _publish(control_plane, space, _events(event), one=event != "-")
    Console(stderr=True).print(f"published {count} {'event' if count == 1 else 'events'}")


def _publish(
    control_plane: "ControlPlane", space: str, events: Iterable[dict[str, Any]], one: bool
) -> int:
    advertised = control_plane.advertised(space)
    own: Advertisement | None = None
    count = 0
    for event in events:
        if own is not None or advertised.publish(event) is None:
            if own is None:
                # The following lines are not known yet, so the whole space is advertised.
                exactly: dict[str, Any] = {name: {"eq": value} for name, value in event.items()}
                own = control_plane.advertise(space, exactly if one else {}, label="publish")
            own.publish(event)
        count += 1
    if own is not None:
        time.sleep(_IN_FLIGHT)
    return count


def _events(given: str) -> Iterator[dict[str, Any]]:
    lines = (line for line in sys.stdin if line.strip()) if given == "-" else iter([given])
    for number, line in enumerate(lines, 1):
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise BadEvent(f"event {number} is not JSON: {error}") from None
        if not isinstance(event, dict):
            raise BadEvent(f'event {number} is not an object such as {{"price": 420}}')
        yield event


@with_option_groups
def listen(
    *,
    host: Host,
    space: Space,
    filter: Filter,
    count: Annotated[int | None, typer.Option(min=1, help="Exit after this many events.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="Exit after this many seconds; with 1 if --count is not reached."),
    ] = None,
    json: AsJson = False,
    service: ServiceOptions,
    interface: Interface = None,
) -> None:
    """Subscribe and print events, one per line, until Ctrl-C, --count or --timeout."""

    with (
        interruptible(),
        service.control_plane(host, interface) as control_plane,
    ):
        events = control_plane.subscribe(space, filter, label="listen")
        Console(stderr=True).print(f"listening as {plain(events.id)}", highlight=False)
        until = None if timeout is None else time.monotonic() + timeout
        seen = 0
        while count is None or seen < count:
            try:
                event = events.get(None if until is None else max(0.0, until - time.monotonic()))
            except TimeoutError:
                break
            seen += 1
            print(_line(event, json), flush=True)
    if count is not None and seen < count:
        Console(stderr=True).print(f"{seen} of {count} events arrived within {timeout:g} s")
        raise typer.Exit(1)


def _line(event: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json_line(event)
    return printable("  ".join(f"{name}={value}" for name, value in event.items()))


@with_option_groups
def subscribe(*, host: Host, space: Space, filter: Filter, service: ServiceOptions) -> None:
    """Subscribe for a host, and print the id. The subscription lasts until `unsubscribe`."""
    _begin("subscription", host, space, filter, service)


@with_option_groups
def advertise(*, host: Host, space: Space, filter: Filter, service: ServiceOptions) -> None:
    """Advertise for a host, and print the id. The advertisement lasts until `unadvertise`."""
    _begin("advertisement", host, space, filter, service)


@with_option_groups
def unsubscribe(
    *,
    id: Annotated[str, typer.Argument(help="The id of the subscription.")],
    service: ServiceOptions,
) -> None:
    """End a subscription."""
    _end("subscription", id, service)


@with_option_groups
def unadvertise(
    *,
    id: Annotated[str, typer.Argument(help="The id of the advertisement.")],
    service: ServiceOptions,
) -> None:
    """End an advertisement."""
    _end("advertisement", id, service)


@with_option_groups
def explain(
    *,
    space: Space,
    filter: Annotated[str | None, typer.Option(help="The filter, such as 'price >= 420'.")] = None,
    event: Annotated[
        str | None, typer.Option(help="An event as JSON: how would it travel?")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The host that would subscribe, or publish the event.")
    ] = None,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the regions of a filter and the flows that it would need, or the way of an event."""

    given = None if event is None else next(_events(event))
    with interruptible(), service.rest() as rest:
        found = rest.explain(space, filter, host, given)
    if json:
        print(json_line(found))
        return
    console = Console()
    if filter is not None:
        _show_filter(console, found, host)
    if found.get("event"):
        _show_path(console, found["event"])
    if found.get("note"):
        console.print(plain(found["note"]), highlight=False)


def _show_filter(console: Console, found: dict[str, Any], host: str | None) -> None:
    table = Table("region", "meaning")
    for region, cell in zip(found["regions"], found["cells"], strict=True):
        table.add_row(plain(str(region)), plain(str(cell)))
    console.print(table)
    console.print(f"unwanted: {found['false_share']:.1%} of the events in the regions")
    if host is not None:
        flows = found["flows"]
        switches = list(dict.fromkeys(flow["switch"] for flow in flows))
        where = f" on {plain(', '.join(switches))}" if switches else ""
        console.print(f"flows: {len(flows)}{where}", highlight=False)


def _show_path(console: Console, path: dict[str, Any]) -> None:
    console.print(f"address: {plain(path['address'])} (tree {path['tree']})", highlight=False)
    if not path["admitted"]:
        console.print(f"not admitted: {plain(path['reason'])}", highlight=False)
        return
    if path["hops"] is None:
        console.print("admitted; only operators see where it goes", highlight=False)
        return
    table = Table("hop", "switch", "from", "to")
    for number, hop in enumerate(path["hops"], 1):
        targets = [
            f"{target.get('switch') or target.get('host')} (port {target['port']})"
            for target in hop["to"]
        ]
        sender = f"{hop['from']} (port {hop['in_port']})"
        table.add_row(str(number), plain(hop["switch"]), plain(sender), plain(", ".join(targets)))
    console.print(table)
    for word in ("delivered", "unwanted", "missed"):
        if path[word] or word == "delivered":
            hosts = ", ".join(path[word]) or "to no host"
            console.print(f"{word}: {plain(hosts)}", highlight=False)


def _begin(kind: "Kind", host: str, space: str, filter: str, service: ServiceOptions) -> None:

    with interruptible(), service.rest() as rest:
        print(printable(rest.begin(kind, host, space, filter)["id"]))


def _end(kind: "Kind", id: str, service: ServiceOptions) -> None:

    with interruptible(), service.rest() as rest:
        rest.end(kind, id)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `dzflow` command."""
    for command in (publish, listen, subscribe, advertise, unsubscribe, unadvertise, explain):
        app.command()(command)
