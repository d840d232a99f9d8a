"""`dzflow hosts`: show the hosts, and decide about those that were heard in the network."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console

from dzflow.cli.option_groups import BadOption, with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.rest import checked, get, open_client
from dzflow.cli.tables import plain, print_json, show_list

if TYPE_CHECKING:
    import httpx

app = typer.Typer(help="Show the hosts, and accept or reject those that were heard.")

Ids = Annotated[
    list[str] | None, typer.Argument(help="Hosts as `dzflow hosts proposals` shows them.")
]


@app.callback(invoke_without_command=True)
@with_option_groups
def show(
    *,
    context: typer.Context,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the hosts, and the switch and port of each."""
    if context.invoked_subcommand is not None:
        return
    found = get(service, "/hosts")
    if json:
        print_json(found)
        return
    items = [each | {"reason": each["unreachable"]} for each in found["items"]]
    columns = ("id", "switch", "port", "mac", "ipv6", "wire", "reason")
    show_list(items, columns, ("wire", "ipv6", "mac"))


@app.command()
@with_option_groups
def proposals(*, json: AsJson = False, service: ServiceOptions) -> None:
    """Show the hosts that were heard and are not in the network, and what is odd about them."""
    found = get(service, "/host-proposals")
    if json:
        print_json(found)
        return
    items = [
        each | {"since": _time(each["since"]), "reason": each["problem"] or each["doubt"]}
        for each in found["items"]
    ]
    columns = ("id", "switch", "port", "ipv6", "since", "state", "reason")
    show_list(items, columns, ("since", "ipv6"))
    if found["mode"] == "declared":
        text = "No hosts are learned: discovery.hosts is declared."
        Console(stderr=True).print(text, highlight=False)


@app.command()
@with_option_groups
def accept(
    *,
    ids: Ids = None,
    name: Annotated[
        str | None, typer.Option(help="The id that the host is to have; default: its own.")
    ] = None,
    all: Annotated[
        bool, typer.Option("--all", help="All that are proposed, and about which nothing is odd.")
    ] = False,
    service: ServiceOptions,
) -> None:
    """Have hosts join that were heard; a rejected one, too."""
    if all == bool(ids) or (name is not None and (all or len(ids or ()) != 1)):
        raise BadOption("name the hosts, or say --all; --name is for a single host")
    console = Console(stderr=True)
    with interruptible(), open_client(service) as client:
        found = {each["id"]: each for each in _proposals(client)}
        for id in [id for id, each in found.items() if _is_sound(each)] if all else ids or ():
            # Where it was seen: it is refused if it is elsewhere by the time that it is accepted.
            place = {key: found[id][key] for key in ("switch", "port")} if id in found else {}
            body = {"id": name or id, **place}
            host = checked(client.post(f"{_path(id)}/accept", json=body)).json()
            text = f"{host['id']} has joined at port {host['port']} of {host['switch']}"
            console.print(plain(text), highlight=False)


@app.command()
@with_option_groups
def reject(
    *,
    ids: Annotated[list[str], typer.Argument(help="Hosts as `dzflow hosts proposals` shows them.")],
    service: ServiceOptions,
) -> None:
    """Reject hosts that were heard: they do not join, until one is accepted after all."""
    with interruptible(), open_client(service) as client:
        for id in ids:
            checked(client.post(f"{_path(id)}/reject"))
            Console(stderr=True).print(plain(f"{id} is rejected"), highlight=False)


def add_to(parent: typer.Typer) -> None:
    """Add these commands to the `dzflow` command."""
    parent.add_typer(app, name="hosts")


def _proposals(client: "httpx.Client") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = checked(client.get("/host-proposals")).json()["items"]
    return items


def _is_sound(each: dict[str, Any]) -> bool:
    return each["state"] == "proposed" and not each["problem"] and not each["doubt"]


def _path(id: str) -> str:
    return f"/host-proposals/{quote(id, safe='')}"


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"
