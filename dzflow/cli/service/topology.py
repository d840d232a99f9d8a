"""`dzflow topology`: show the network, write it to a file, declare or forget parts of it."""

import json as json_lib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from dzflow.cli.option_groups import BadOption, with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.rest import checked, get, open_client
from dzflow.cli.tables import plain, print_json, state
from dzflow.errors import BadInput

app = typer.Typer(help="Show the network, write it to a file, declare or forget parts of it.")

CREATED, ACCEPTED = 201, 202
DPID_DIGITS = 16
SUFFIXES = (".json", ".yaml", ".yml")


class NoExport(BadInput):
    """The network cannot be written to this file."""


@app.callback(invoke_without_command=True)
@with_option_groups
def show(
    *,
    context: typer.Context,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show hosts, links and trees, and where the network is not what it should be."""
    if context.invoked_subcommand is not None:
        return
    found = get(service, "/topology")
    if json:
        print_json(found)
        return
    console = Console()
    hosts = Table("host", "switch", "port", "endpoint", title="hosts", title_justify="left")
    for host in found["hosts"]:
        row = (host["id"], host["switch"], host["port"], host.get("wire") or "")
        hosts.add_row(*map(plain, row))
    links = Table("link", "state", "discovery", title="links", title_justify="left")
    for link in found["links"]:
        hidden = "" if link["lldp"] else "not probed"
        links.add_row(plain(_link(link)), state("up" if link["up"] else "down"), hidden)
    trees = Table("tree", "root", "links", "whole", title="trees", title_justify="left")
    for tree in found["trees"]:
        whole = "yes" if tree["whole"] else f"no: {', '.join(tree['broken'])}"
        trees.add_row(*map(plain, (tree["number"], tree["root"], len(tree["links"]), whole)))
    for table in (hosts, links, trees):
        console.print(table)
    if found["differences"]:
        kinds = Table("difference", "what was found", title="differences", title_justify="left")
        for one in found["differences"]:
            kinds.add_row(*map(plain, (one["kind"], one["text"])))
        console.print(kinds)


@app.command()
@with_option_groups
def export(
    *,
    file: Annotated[
        Path, typer.Argument(help="The file to write, .json or .yaml; an existing one is replaced.")
    ],
    service: ServiceOptions,
) -> None:
    """Write the network to a topology file, for `dzflow up --topology`."""
    if file.suffix not in SUFFIXES:
        raise NoExport(f"{file}: the name of a topology file ends in {', '.join(SUFFIXES)}")
    found = get(service, "/topology")
    members = {
        "switches": ("id", "dpid"),
        "links": ("a", "a_port", "b", "b_port"),
        "hosts": ("id", "switch", "port", "mac", "ipv6"),
    }
    document = {
        section: [_chosen(one, names) | _treatment(one) for one in found[section]]
        for section, names in members.items()
    }
    try:
        # JSON is YAML, too.
        file.write_text(json_lib.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise NoExport(f"cannot write {file}: {error.strerror}") from None
    counts = ", ".join(f"{len(document[section])} {section}" for section in members)
    Console(stderr=True).print(f"{counts} written to {plain(str(file))}", highlight=False)


@app.command()
@with_option_groups
def declare(
    *,
    name: Annotated[str, typer.Argument(help="A switch, such as s7, or a link: s1:2-s7:1.")],
    dpid: Annotated[
        str | None,
        typer.Option(help="Datapath id of a switch: 7, 0x7 or 16 hexadecimal digits; if new."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="What people call the switch.")] = None,
    rate: Annotated[float | None, typer.Option(help="Flow-mods per second; 0: no limit.")] = None,
    window: Annotated[int | None, typer.Option(help="Flow-mods without an answer yet.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is given up.")] = None,
    echo_every: Annotated[float | None, typer.Option(help="Seconds between two echos.")] = None,
    capacity: Annotated[int | None, typer.Option(help="Entries of each table.")] = None,
    tables: Annotated[str | None, typer.Option(help="Tables that may be used: 60-90.")] = None,
    groups: Annotated[str | None, typer.Option(help="Groups that may be used: 1-500.")] = None,
    lldp: Annotated[
        bool | None,
        typer.Option("--lldp", help="The link carries LLDP, so that discovery finds it."),
    ] = None,
    service: ServiceOptions,
) -> None:
    """Add a switch or a link to a discovered network, or change how it is treated.

    A switch before it connects, a link that discovery cannot find. What is left out gets its
    default, but for the datapath id of a switch that there is.
    """
    given = {
        "dpid": None if dpid is None else _dpid(dpid),
        "label": label,
        "rate": rate,
        "window": window,
        "timeout": timeout,
        "echo_every": echo_every,
        "capacity": capacity,
        "tables": None if tables is None else _range("tables", tables),
        "groups": None if groups is None else _range("groups", groups),
        "lldp": lldp,
    }
    body = {option: value for option, value in given.items() if value is not None}
    is_link = ":" in name
    wrong = [option for option in body if (option == "lldp") is not is_link]
    if wrong:
        kind, names = "link" if is_link else "switch", ", ".join(wrong).replace("_", "-")
        raise BadOption(f"{plain(name)} is a {kind}, which has no {names}")
    kind = "links" if is_link else "switches"
    with interruptible(), open_client(service) as client:
        answer = checked(client.put(f"/{kind}/{quote(name, safe='')}", json=body))
    done = "added" if answer.status_code == CREATED else "changed"
    Console(stderr=True).print(f"{plain(name)} is {done}", highlight=False)


@app.command()
@with_option_groups
def forget(
    *,
    name: Annotated[str, typer.Argument(help="A switch, such as s7, or a link: s1:2-s7:1.")],
    service: ServiceOptions,
) -> None:
    """Remove a switch or a link that is gone for good from a discovered network."""
    kind = "links" if ":" in name else "switches"
    with interruptible(), open_client(service) as client:
        answer = checked(client.delete(f"/{kind}/{quote(name, safe='')}"))
    later = "will be removed when no tree uses it any more"
    done = later if answer.status_code == ACCEPTED else "is removed"
    Console(stderr=True).print(f"{plain(name)} {done}", highlight=False)


def _dpid(text: str) -> int:
    """A datapath id as people write it; with all its 16 digits, it is hexadecimal."""
    is_hex = text.lower().startswith("0x") or len(text) == DPID_DIGITS
    try:
        return int(text, 16 if is_hex else 10)
    except ValueError:
        raise BadOption(f"dpid: {plain(text)} is no number such as 7 or 0x7") from None


def _range(option: str, text: str) -> list[int]:
    first, _, last = text.partition("-")
    try:
        return [int(first), int(last)]
    except ValueError:
        raise BadOption(f"{option}: {plain(text)} is no range such as 1-90") from None


def _treatment(one: dict[str, Any]) -> dict[str, Any]:
    """How a switch or link is treated, where that is not the default."""
    found: dict[str, Any] = dict(one.get("limits", {}))
    if one.get("label"):
        found["label"] = one["label"]
    if not one.get("lldp", True):
        found["lldp"] = False
    return found


def _chosen(one: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: one[name] for name in names if one[name] is not None}


def _link(link: dict[str, Any]) -> str:
    return f"{link['a']}:{link['a_port']} - {link['b']}:{link['b_port']}"
